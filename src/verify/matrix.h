// The models and layouts to compare, from a configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/tokenizer.h"
#include "verify/layouts.h"

namespace plait::verify {

// The configuration with these overrides on top of the user's. Throws ConfigError.
using ConfigSource = std::function<Config(const std::vector<std::string>& overrides)>;

// A model, as configured or with the overrides of a variant.
struct VerifyModel {
  std::string name;
  std::vector<std::string> overrides;  // of the variant
  Config serial;
  std::shared_ptr<const data::Tokenizer> tokenizer;
};

struct VerifyCase {
  std::size_t model = 0;  // index into VerifyMatrix::models
  std::string layout;     // layout_text()
  Config config;
};

struct RefusedLayout {
  std::string model, layout, reason;
};

struct VerifyMatrix {
  std::vector<VerifyModel> models;
  std::vector<VerifyCase> cases;  // model by model
  std::vector<RefusedLayout> refused;
};

// `layouts` replaces verify.layouts unless it is empty. A layout of `all` that a rule refuses is left out and listed as
// refused, and so is a layout given by name that suits only some of the models; ConfigError if one suits none, or if nothing is
// left.
VerifyMatrix make_matrix(const ConfigSource& source, const std::vector<std::string>& layouts = {});

}  // namespace plait::verify
