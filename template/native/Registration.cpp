// Owned by the project template; changed only by `copier update`.

#include "Registration.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassInstrumentation.h"
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

/// Records while passes run. Triton registers a handler of its own when the
/// pipeline starts, which would hide what comes to an earlier one.
class ErrorRecorder : public mlir::PassInstrumentation {
public:
  explicit ErrorRecorder(std::shared_ptr<Errors> errors)
      : errors(std::move(errors)) {}

  void runBeforePass(mlir::Pass *, mlir::Operation *op) override {
    if (depth++ == 0)
      handler = op->getContext()->getDiagEngine().registerHandler(
          [errors = errors](mlir::Diagnostic &diag) {
            record(*errors, diag);
            return mlir::failure(); // let the other handlers see it too
          });
  }
  void runAfterPass(mlir::Pass *, mlir::Operation *op) override { leave(op); }
  void runAfterPassFailed(mlir::Pass *, mlir::Operation *op) override {
    leave(op);
  }

private:
  static void record(Errors &errors, mlir::Diagnostic &diag) {
    if (diag.getSeverity() != mlir::DiagnosticSeverity::Error)
      return;
    std::string line;
    llvm::raw_string_ostream stream(line);
    stream << diag.getLocation() << ": " << diag << "\n";
    std::lock_guard<std::mutex> lock(errors.mutex);
    // Each pass of a pipeline brings a recorder: keep one copy.
    if (errors.text.find(line) == std::string::npos)
      errors.text += line;
  }

  void leave(mlir::Operation *op) {
    if (--depth == 0)
      op->getContext()->getDiagEngine().eraseHandler(handler);
  }

  std::shared_ptr<Errors> errors;
  unsigned depth = 0; // passes nest; MLIR serializes these calls
  mlir::DiagnosticEngine::HandlerID handler = 0;
};

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

void recordErrors(mlir::PassManager &manager) {
  manager.addInstrumentation(
      std::make_unique<ErrorRecorder>(errorsOfThisThread()));
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

/// How the LLVM of this build matched Triton's: "exact" or "nearest". In the
/// library itself, since a record beside it can be lost or changed.
TRITON_PLUGIN_API const char *tritonPluginLLVMMatch() {
  return PLUGIN_LLVM_MATCH;
}
