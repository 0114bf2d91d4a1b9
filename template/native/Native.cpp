// Owned by the project template; changed only by `copier update`.
//
// The Python module `_native`: Triton's and the plugin's dialects and passes on
// MLIR text, in this process. Nothing that runs a kernel needs it.

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "triton/Conversion/TritonToTritonGPU/Passes.h"
#include "triton/Dialect/Triton/IR/Dialect.h"
#include "triton/Dialect/Triton/Transforms/Passes.h"
#include "triton/Dialect/TritonGPU/IR/Dialect.h"
#include "triton/Dialect/TritonNvidiaGPU/IR/Dialect.h"
#include "triton/Tools/PluginUtils.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

// Passes.h of TritonGPU includes headers that no wheel ships; what mlir-tblgen
// made of its passes is enough to register them.
namespace mlir::triton::gpu {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "triton/Dialect/TritonGPU/Transforms/Passes.h.inc"
} // namespace mlir::triton::gpu

namespace py = pybind11;
using namespace mlir;

namespace {

// Deeply nested IR recurses deeply; the caller's stack may be a thread's.
constexpr unsigned kStackSize = 256u << 20;

struct Plugin {
  triton::plugin::PluginInfo *info = nullptr;
  int (*selfTest)(void (*)(const char *, int)) = nullptr;
} bound;

class PipelineError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

const Plugin &plugin() {
  if (!bound.info)
    throw PipelineError("the plugin is not loaded; call load() first");
  return bound;
}

void bind(uintptr_t getPluginInfo, uintptr_t selfTest) {
  bound.info =
      reinterpret_cast<triton::plugin::PluginInfo *(*)()>(getPluginInfo)();
  bound.selfTest = reinterpret_cast<decltype(Plugin::selfTest)>(selfTest);
}

void registerPasses() {
  static bool once = [] {
    registerCanonicalizerPass();
    registerCSEPass();
    registerInlinerPass();
    registerLoopInvariantCodeMotionPass();
    registerSCCPPass();
    registerSymbolDCEPass();
    triton::registerTritonPasses();
    triton::registerConvertTritonToTritonGPUPass();
    triton::gpu::registerTritonGPUPasses();
    for (size_t i = 0; i < bound.info->numPasses; ++i)
      bound.info->passes[i].registerPass();
    return true;
  }();
  (void)once;
}

DialectRegistry dialects() {
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, cf::ControlFlowDialect,
                  LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect,
                  triton::TritonDialect, triton::gpu::TritonGPUDialect,
                  triton::nvidia_gpu::TritonNvidiaGPUDialect>();
  for (size_t i = 0; i < bound.info->numDialects; ++i)
    bound.info->dialects[i].registerDialect(&registry);
  return registry;
}

struct Request {
  std::string text, pipeline, filename;
  bool verifyDiagnostics, printAfterAll, timing;
};

struct Outcome {
  std::string output, diagnostics;
  bool ok = false;
};

void process(const Request &request, Outcome &outcome) {
  MLIRContext context(dialects(), MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();

  auto sources = std::make_shared<llvm::SourceMgr>();
  sources->AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBuffer(request.text, request.filename),
      llvm::SMLoc());
  llvm::raw_string_ostream diagnostics(outcome.diagnostics);
  std::unique_ptr<SourceMgrDiagnosticVerifierHandler> verifier;
  std::unique_ptr<SourceMgrDiagnosticHandler> printer;
  if (request.verifyDiagnostics)
    verifier = std::make_unique<SourceMgrDiagnosticVerifierHandler>(
        *sources, &context, diagnostics);
  else
    printer = std::make_unique<SourceMgrDiagnosticHandler>(*sources, &context,
                                                           diagnostics);

  auto run = [&]() -> LogicalResult {
    OwningOpRef<ModuleOp> module =
        parseSourceFile<ModuleOp>(sources, ParserConfig(&context));
    if (!module)
      return failure();
    FailureOr<OpPassManager> pipeline =
        parsePassPipeline(request.pipeline, diagnostics);
    if (failed(pipeline))
      return failure();
    PassManager manager(&context, pipeline->getOpAnchorName());
    static_cast<OpPassManager &>(manager) = std::move(*pipeline);
    if (request.printAfterAll)
      manager.enableIRPrinting([](Pass *, Operation *) { return false; },
                               [](Pass *, Operation *) { return true; },
                               /*printModuleScope=*/true,
                               /*printAfterOnlyOnChange=*/false,
                               /*printAfterOnlyOnFailure=*/false, diagnostics);
    DefaultTimingManager timing;
    if (request.timing) {
      timing.setEnabled(true);
      timing.setOutput(createOutputStrategy(
          DefaultTimingManager::OutputFormat::Text, diagnostics));
    }
    TimingScope scope = timing.getRootScope();
    manager.enableTiming(scope);
    if (failed(manager.run(*module)))
      return failure();
    llvm::raw_string_ostream output(outcome.output);
    module->print(output);
    output << "\n";
    return success();
  };
  outcome.ok = succeeded(run());
  if (verifier)
    outcome.ok = succeeded(verifier->verify());
}

py::tuple runPipeline(Request request) {
  plugin();
  Outcome outcome;
  bool finished;
  {
    py::gil_scoped_release release;
    registerPasses();
    llvm::CrashRecoveryContext::Enable();
    llvm::CrashRecoveryContext recovery;
    finished = recovery.RunSafelyOnThread([&] { process(request, outcome); },
                                          kStackSize);
    llvm::CrashRecoveryContext::Disable();
  }
  if (!finished)
    throw PipelineError(outcome.diagnostics + request.filename +
                        ": the compiler crashed in this pipeline; "
                        "--print-ir-after-all shows how far it came");
  if (!outcome.ok)
    throw PipelineError(outcome.diagnostics);
  return py::make_tuple(outcome.output, outcome.diagnostics);
}

/// Prints what a pipeline may name, in MLIR's own form.
void printPasses() {
  plugin();
  registerPasses();
  printRegisteredPasses();
  llvm::outs().flush();
}

std::vector<std::string> failures;

std::vector<std::string> selfTest() {
  failures.clear();
  plugin().selfTest([](const char *check, int held) {
    if (held == 0)
      failures.push_back(check);
  });
  return failures;
}

} // namespace

PYBIND11_MODULE(_native, m) {
  m.doc() = "Triton's and the plugin's dialects and passes on MLIR text.";
  py::register_exception<PipelineError>(m, "PipelineError", PyExc_RuntimeError);
  m.def("bind", &bind, py::arg("get_plugin_info"), py::arg("self_test"));
  m.def("self_test", &selfTest);
  m.def("print_passes", &printPasses);
  m.def(
      "run_pipeline_with_log",
      [](std::string text, std::string pipeline, std::string filename,
         bool verifyDiagnostics, bool printAfterAll, bool timing) {
        return runPipeline({std::move(text), std::move(pipeline),
                            std::move(filename), verifyDiagnostics,
                            printAfterAll, timing});
      },
      py::arg("text"), py::arg("pipeline"), py::arg("filename") = "<string>",
      py::arg("verify_diagnostics") = false, py::arg("print_after_all") = false,
      py::arg("timing") = false);
  m.def(
      "run_pipeline",
      [](std::string text, std::string pipeline, std::string filename) {
        py::tuple both =
            runPipeline({std::move(text), std::move(pipeline),
                         std::move(filename), false, false, false});
        return both[0].cast<std::string>();
      },
      py::arg("text"), py::arg("pipeline"), py::arg("filename") = "<string>",
      "Runs a textual pipeline on MLIR text and returns the resulting text.\n\n"
      "Raises PipelineError, with the diagnostics, if it does not parse,\n"
      "verify or pass.");
}
