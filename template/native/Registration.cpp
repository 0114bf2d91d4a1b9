// Owned by the project template; changed only by `copier update`.

#include "Registration.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/raw_ostream.h"
#include <mutex>
#include <stdexcept>
#include <utility>

namespace registration {
namespace {

/// The errors of pass pipelines that one thread has built. Triton may run a
/// pipeline in another thread than the one that waits for it.
struct Errors {
  std::mutex mutex;
  std::string text;
};

std::shared_ptr<Errors> errorsOfThisThread() {
  thread_local auto errors = std::make_shared<Errors>();
  return errors;
}

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
  std::shared_ptr<Errors> errors = errorsOfThisThread();
  context.getDiagEngine().registerHandler([errors](mlir::Diagnostic &diag) {
    if (diag.getSeverity() == mlir::DiagnosticSeverity::Error) {
      std::string line;
      llvm::raw_string_ostream stream(line);
      stream << diag.getLocation() << ": " << diag << "\n";
      std::lock_guard<std::mutex> lock(errors->mutex);
      // Each pass of a pipeline registers this handler: keep one copy.
      if (errors->text.find(line) == std::string::npos)
        errors->text += line;
    }
    return mlir::failure(); // let the other handlers see it too
  });
}

std::string takeErrors() {
  std::shared_ptr<Errors> errors = errorsOfThisThread();
  std::lock_guard<std::mutex> lock(errors->mutex);
  return std::exchange(errors->text, {});
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

/// Returns and forgets the errors of the pipelines that this thread has built,
/// one a line, each with its location. Valid until the thread's next call.
TRITON_PLUGIN_API const char *tritonPluginTakeErrors() {
  thread_local std::string taken;
  taken = registration::takeErrors();
  return taken.c_str();
}
