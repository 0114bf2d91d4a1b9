// Owned by the project template; changed only by `copier update`.

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def SelfTest_Dialect : Dialect {
  let name = "selftest";
  let cppNamespace = "::selftest";
}

defvar ProbeType = AnyTypeOf<[AnyFloat, RankedTensorOf<[AnyFloat]>]>;

def ProbeOp
    : Op<SelfTest_Dialect, "probe", [Elementwise, SameOperandsAndResultType, Pure]> {
  let arguments = (ins ProbeType:$input);
  let results = (outs ProbeType:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}
