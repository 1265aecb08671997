// Conditions on points: `study.skip` and `--only`.
//
//   condition   = conjunction { "or" conjunction }
//   conjunction = negation { "and" negation }
//   negation    = "not" negation | "(" condition ")" | comparison
//   comparison  = sum ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) sum
//   sum         = product { ( "+" | "-" ) product }
//   product     = operand { ( "*" | "/" | "%" ) operand }
//   operand     = number | name | "text" | "(" sum ")" | "-" operand
//
// A name is a key of a configuration, whole (train.micro_batch) or its last part if that is plain (micro_batch; if it fits more
// than one key, the one of `parallel`). Every other word is a text: `schedule == zb-v`.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "config/config.h"

namespace plait::study {

class Expression {
 public:
  // ConfigError, under `key` ("study.skip", "--only"), naming the place where `text` is not an expression, or where a
  // comparison names no key.
  Expression(const std::string& text, const std::string& key);
  Expression(Expression&&) noexcept;
  Expression& operator=(Expression&&) noexcept;
  ~Expression();

  // nullopt if it depends on a key that `config` still leaves open (`auto`). ConfigError if a text is compared with a number,
  // or used in a calculation.
  std::optional<bool> holds(const Config& config) const;

  const std::string& text() const { return text_; }

  struct Node;

 private:
  std::string text_, key_;
  std::unique_ptr<Node> root_;
};

}  // namespace plait::study
