// Owned by the project template; changed only by `copier update`.
//
// Do this library and libtriton mean the same by MLIR's types, traits,
// interfaces and attributes? Linking and loading prove nothing: inlined code
// from headers of another LLVM, or of another compiler, misjudges silently.
// Each check crosses the border in one direction or in both.

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "triton/Dialect/Triton/IR/Dialect.h"
#include "triton/Dialect/Triton/Transforms/Passes.h"
#include "triton/Dialect/TritonGPU/IR/Dialect.h"
#include "triton/Tools/PluginUtils.h"

#include "SelfTestDialect.h.inc"
#define GET_OP_CLASSES
#include "SelfTestOps.h.inc"

#include "SelfTestDialect.cpp.inc"
#define GET_OP_CLASSES
#include "SelfTestOps.cpp.inc"

using namespace mlir;

void selftest::SelfTestDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "SelfTestOps.cpp.inc"
      >();
}

namespace {

constexpr llvm::StringLiteral kTypes = R"(
tt.func @types(%h: f16, %b: bf16, %f: f32, %d: f64, %i: i32,
               %p: !tt.ptr<f32>, %t: tensor<8xf32>) { tt.return })";

constexpr llvm::StringLiteral kOps = R"(
tt.func @ops(%p: !tt.ptr<f32>, %x: tensor<8xf32>) -> tensor<8xf32> {
  %c = arith.constant dense<2.5> : tensor<8xf32>
  %l = tt.load %p : !tt.ptr<f32>
  %e = math.exp %x : tensor<8xf32>
  %s = arith.addf %e, %c : tensor<8xf32>
  tt.return %s : tensor<8xf32>
})";

constexpr llvm::StringLiteral kSplat = R"(
tt.func @splat(%x: f32) -> tensor<8xf32> {
  %0 = tt.splat %x : f32 -> tensor<8xf32>
  %1 = selftest.probe %0 : tensor<8xf32>
  tt.return %1 : tensor<8xf32>
})";

constexpr llvm::StringLiteral kTwice = R"(
tt.func @twice(%x: f32) -> f32 {
  %0 = selftest.probe %x : f32
  %1 = selftest.probe %x : f32
  %2 = selftest.probe %x : f32
  %3 = arith.addf %0, %1 : f32
  tt.return %3 : f32
})";

constexpr llvm::StringLiteral kMismatch = R"(
tt.func @mismatch(%x: f32) -> f64 {
  %0 = "selftest.probe"(%x) : (f32) -> f64
  tt.return %0 : f64
})";

constexpr llvm::StringLiteral kEncoding = R"(
#blocked = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32],
                         warpsPerCTA = [2], order = [0]}>
module attributes {"ttg.num-warps" = 2 : i32, "ttg.threads-per-warp" = 32 : i32} {
  tt.func @encoding(%x: tensor<256xf32, #blocked>) { tt.return }
})";

class SelfTest {
public:
  SelfTest(void (*report)(const char *, int)) : report(report) {
    DialectRegistry registry;
    registry
        .insert<arith::ArithDialect, math::MathDialect, triton::TritonDialect,
                triton::gpu::TritonGPUDialect, selftest::SelfTestDialect>();
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    // What is provoked here is not for the reader's terminal.
    context.getDiagEngine().registerHandler(
        [](Diagnostic &) { return success(); });
  }

  int run() {
    types();
    ops();
    probe();
    encoding();
    return failures;
  }

private:
  /// Reports a check: -1 before it runs, so that a crash has a name, then 1 or
  /// 0 for whether it held.
  void check(const char *name, llvm::function_ref<bool()> holds) {
    report(name, -1);
    bool held = holds();
    report(name, held);
    failures += !held;
  }

  OwningOpRef<ModuleOp> parse(StringRef text) {
    return parseSourceString<ModuleOp>(text, &context);
  }

  template <typename Op> static Op find(ModuleOp module) {
    Op found;
    if (module)
      module.walk([&](Op op) { found = op; });
    return found;
  }

  void types() {
    OwningOpRef<ModuleOp> module;
    check("libtriton's parser reads Triton IR",
          [&] { return bool(module = parse(kTypes)); });
    auto function = find<triton::FuncOp>(*module);
    if (!function)
      return;
    auto type = [&](unsigned i) { return function.getArgumentTypes()[i]; };
    check("isa<FloatType>", [&] {
      return isa<FloatType>(type(0)) && isa<FloatType>(type(1)) &&
             isa<FloatType>(type(2)) && isa<FloatType>(type(3)) &&
             !isa<FloatType>(type(4)) && !isa<FloatType>(type(6)) &&
             type(1).isBF16() && type(2).isF32();
    });
    check("isa<IntegerType>", [&] {
      auto integer = dyn_cast<IntegerType>(type(4));
      return integer && integer.getWidth() == 32 && !isa<IntegerType>(type(2));
    });
    check("isa<PointerType>", [&] {
      auto pointer = dyn_cast<triton::PointerType>(type(5));
      return pointer && pointer.getPointeeType().isF32() &&
             !isa<triton::PointerType>(type(4));
    });
    check("isa<RankedTensorType>", [&] {
      auto tensor = dyn_cast<RankedTensorType>(type(6));
      return tensor && tensor.getNumElements() == 8 &&
             tensor.getElementType().isF32() && !isa<RankedTensorType>(type(2));
    });
  }

  void ops() {
    OwningOpRef<ModuleOp> module = parse(kOps);
    auto exp = find<math::ExpOp>(*module);
    auto add = find<arith::AddFOp>(*module);
    auto load = find<triton::LoadOp>(*module);
    auto constant = find<arith::ConstantOp>(*module);
    if (!exp || !add || !load || !constant)
      return check("libtriton's parser reads ops", [] { return false; });
    check("trait Elementwise of libtriton's ops", [&] {
      return exp->hasTrait<OpTrait::Elementwise>() &&
             !load->hasTrait<OpTrait::ConstantLike>();
    });
    check("trait Pure of libtriton's ops",
          [&] { return isPure(exp) && isPure(add) && !isPure(load); });
    check("interface MemoryEffectOpInterface of libtriton's ops", [&] {
      auto effects = dyn_cast<MemoryEffectOpInterface>(load.getOperation());
      return effects && effects.hasEffect<MemoryEffects::Read>();
    });
    check("interface InferTypeOpInterface of libtriton's ops", [&] {
      auto infer = dyn_cast<InferTypeOpInterface>(add.getOperation());
      SmallVector<Type> inferred;
      return infer &&
             succeeded(infer.inferReturnTypes(
                 &context, std::nullopt, add->getOperands(),
                 add->getAttrDictionary(), add->getPropertiesStorage(),
                 add->getRegions(), inferred)) &&
             inferred.size() == 1 && inferred[0] == add.getType();
    });
    check("attribute DenseElementsAttr and m_Constant", [&] {
      Attribute value;
      if (!matchPattern(add.getRhs(), m_Constant(&value)))
        return false;
      auto dense = dyn_cast<DenseElementsAttr>(value);
      return dense && dense.isSplat() &&
             dense.getSplatValue<APFloat>().convertToFloat() == 2.5f;
    });
  }

  /// This library's op, judged by passes and verifiers inside libtriton.
  void probe() {
    check("trait Elementwise, seen by Triton's reorder_broadcast", [&] {
      OwningOpRef<ModuleOp> module = parse(kSplat);
      if (!module || !runPass(*module, triton::createTritonReorderBroadcast()))
        return false;
      auto probe = find<selftest::ProbeOp>(*module);
      return probe && probe.getType().isF32();
    });
    check("trait Pure, seen by CSE and dead code elimination", [&] {
      OwningOpRef<ModuleOp> module = parse(kTwice);
      if (!module || !runPass(*module, createCSEPass()))
        return false;
      unsigned count = 0;
      module->walk([&](selftest::ProbeOp) { ++count; });
      return count == 1;
    });
    check("trait SameOperandsAndResultType, seen by the verifier",
          [&] { return !parse(kMismatch) && parse(kTwice); });
    check("interface MemoryEffectOpInterface, seen by libtriton", [&] {
      OwningOpRef<ModuleOp> module = parse(kTwice);
      auto probe = find<selftest::ProbeOp>(*module);
      return probe && isMemoryEffectFree(probe) && isSpeculatable(probe);
    });
  }

  void encoding() {
    check("attribute BlockedEncodingAttr", [&] {
      OwningOpRef<ModuleOp> module = parse(kEncoding);
      auto function = find<triton::FuncOp>(*module);
      if (!function)
        return false;
      auto tensor = cast<RankedTensorType>(function.getArgumentTypes()[0]);
      auto blocked = dyn_cast_or_null<triton::gpu::BlockedEncodingAttr>(
          tensor.getEncoding());
      return blocked && blocked.getSizePerThread()[0] == 4 &&
             triton::gpu::getTotalElemsPerThread(tensor) == 4;
    });
  }

  bool runPass(ModuleOp module, std::unique_ptr<Pass> pass) {
    PassManager manager(&context);
    manager.addPass(std::move(pass));
    return succeeded(manager.run(module));
  }

  MLIRContext context{MLIRContext::Threading::DISABLED};
  void (*report)(const char *, int);
  int failures = 0;
};

} // namespace

/// Runs the checks, calling `report` with a check's name and -1 before it, then
/// 1 or 0 for whether it held. Returns how many did not.
TRITON_PLUGIN_API int tritonPluginSelfTest(void (*report)(const char *, int)) {
  return SelfTest(report).run();
}
