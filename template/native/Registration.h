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

/// Applies "name=value" strings to a pass.
/// \throws std::invalid_argument for an unknown name or an unfit value.
void setOptions(mlir::Pass &pass, const std::vector<std::string> &options);

/// Keeps the errors that `context` reports, for `tritonPluginTakeErrors`.
void recordErrors(mlir::MLIRContext &context);

template <auto Create> plugin::PassInfo passInfo(const char *name) {
  return {name, PLUGIN_VERSION,
          [](mlir::PassManager *manager, const std::vector<std::string> &args) {
            std::unique_ptr<mlir::Pass> pass = Create();
            setOptions(*pass, args);
            recordErrors(*manager->getContext());
            manager->addPass(std::move(pass));
          },
          [] {
            ::mlir::registerPass(
                []() -> std::unique_ptr<mlir::Pass> { return Create(); });
          }};
}

template <typename Dialect> plugin::DialectInfo dialectInfo() {
  static const std::string name = Dialect::getDialectNamespace().str();
  return {name.c_str(), PLUGIN_VERSION,
          [](mlir::DialectRegistry *registry) { registry->insert<Dialect>(); }};
}

/// The table, made from the first call's arguments and kept for the life of
/// the process, as Triton wants it.
plugin::PluginInfo *pluginInfo(std::vector<plugin::PassInfo> passes,
                               std::vector<plugin::DialectInfo> dialects,
                               std::vector<plugin::OpInfo> ops);

} // namespace registration

#endif // TRITON_PLUGIN_REGISTRATION_H
