// Owned by the project template; changed only by `copier update`.

#include "Registration.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/raw_ostream.h"
#include <mutex>
#include <stdexcept>

namespace registration {
namespace {

// Errors of this thread's last pass pipeline. Triton runs a pass manager in
// the thread that called it, so no other thread's errors get in between.
thread_local std::string recordedErrors;

} // namespace

void setOptions(mlir::Pass &pass, const std::vector<std::string> &options) {
  std::string message;
  for (const std::string &option : options) {
    auto report = [&](const llvm::Twine &text) {
      message = text.str();
      return mlir::failure();
    };
    if (mlir::failed(pass.initializeOptions(option, report)))
      throw std::invalid_argument("pass " + pass.getArgument().str() +
                                  " does not take the option '" + option +
                                  "': " + message);
  }
}

void recordErrors(mlir::MLIRContext &context) {
  recordedErrors.clear();
  context.getDiagEngine().registerHandler([](mlir::Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error) {
      std::string line;
      llvm::raw_string_ostream stream(line);
      stream << diagnostic.getLocation() << ": " << diagnostic << "\n";
      // Each pass of a pipeline registers this handler: keep one copy.
      if (recordedErrors.find(line) == std::string::npos)
        recordedErrors += line;
    }
    return mlir::failure(); // let the other handlers see it too
  });
}

plugin::PluginInfo *publish(Table table) {
  static Table kept = std::move(table);
  static plugin::PluginInfo info = {TRITON_PLUGIN_API_VERSION,
                                    PLUGIN_NAME,
                                    PLUGIN_VERSION,
                                    kept.passes.data(),
                                    kept.passes.size(),
                                    kept.dialects.data(),
                                    kept.dialects.size(),
                                    kept.ops.data(),
                                    kept.ops.size(),
                                    TRITON_VERSION};
  return &info;
}

} // namespace registration

/// Returns and forgets the errors recorded in this thread, one a line, each
/// with its location. Valid until the thread's next call.
TRITON_PLUGIN_API const char *tritonPluginTakeErrors() {
  thread_local std::string taken;
  taken = std::move(registration::recordedErrors);
  registration::recordedErrors.clear();
  return taken.c_str();
}
