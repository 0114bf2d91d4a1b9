// Owned by the project template; changed only by `copier update`.
//
// Builds the table that Triton reads from a plugin: one entry for each pass,
// dialect and op.

#ifndef TRITON_PLUGIN_REGISTRATION_H
#define TRITON_PLUGIN_REGISTRATION_H

#include "mlir/Pass/Pass.h"
#include "triton/Tools/PluginUtils.h"
#include <memory>
#include <string>
#include <vector>

namespace registration {

// Triton's `Pass` and `PassInfo` would be ambiguous beside MLIR's.
namespace plugin = mlir::triton::plugin;

/// Makes an op from args[1] and on, and leaves its result in args[0].
using Builder = void(TritonOpBuilder &builder, std::vector<mlir::Value> &args);

/// Applies "name=value" strings to a pass.
/// \throws std::invalid_argument for an unknown name or an unfit value.
void setOptions(mlir::Pass &pass, const std::vector<std::string> &options);

/// Keeps the errors that a pipeline reports, for this thread's `takeErrors`.
void recordErrors(mlir::PassManager &manager);

/// Returns and forgets what this thread has recorded.
std::string takeErrors();

/// What a plugin registers.
struct Table {
  std::vector<plugin::PassInfo> passes;
  std::vector<plugin::DialectInfo> dialects;
  std::vector<plugin::OpInfo> ops;

  /// Adds the pass that `Create` makes, under its name in Python.
  template <auto Create> void addPass(const char *name) {
    passes.push_back(
        {name, PLUGIN_VERSION,
         [](mlir::PassManager *manager, const std::vector<std::string> &args) {
           std::unique_ptr<mlir::Pass> pass = Create();
           setOptions(*pass, args);
           recordErrors(*manager);
           manager->addPass(std::move(pass));
         },
         [] {
           mlir::registerPass(
               []() -> std::unique_ptr<mlir::Pass> { return Create(); });
         }});
  }

  template <typename Dialect> void addDialect() {
    static const std::string name = Dialect::getDialectNamespace().str();
    dialects.push_back(
        {name.c_str(), PLUGIN_VERSION,
         [](mlir::DialectRegistry *registry) { registry->insert<Dialect>(); }});
  }

  /// Adds the function that builds an op, under its name in Python.
  void addOp(const char *name, Builder *build) { ops.push_back({name, build}); }
};

/// The table as Triton wants it: made from the first call's, and kept for the
/// life of the process.
plugin::PluginInfo *publish(Table table);

} // namespace registration

#endif // TRITON_PLUGIN_REGISTRATION_H
