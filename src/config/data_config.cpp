#include "config/data_config.h"

namespace plait {

std::vector<DataSourceConfig> DataConfig::training_sources() const {
  return sources.empty() ? std::vector<DataSourceConfig>{{train, 1.0}} : sources;
}

std::vector<std::string> DataConfig::training_files() const {
  std::vector<std::string> files = train;
  for (const DataSourceConfig& source : sources) files.insert(files.end(), source.files.begin(), source.files.end());
  return files;
}

}  // namespace plait
