#include "study/expression.h"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "config/schema.h"
#include "core/error.h"

namespace plait::study {
namespace {

struct Unknown {};  // `auto`
using Operand = std::variant<Unknown, double, std::string>;

constexpr int deepest = 64;  // parentheses within parentheses

}  // namespace

struct Expression::Node {
  enum class Kind { either, both, negation, comparison, arithmetic, number, text, key };
  Kind kind = Kind::number;
  std::string word;  // operator, text, or path of a key
  double number = 0;
  std::unique_ptr<Node> left, right;
};

namespace {

using Node = Expression::Node;
using NodePtr = std::unique_ptr<Node>;

NodePtr make(Node::Kind kind, std::string word, NodePtr left = nullptr, NodePtr right = nullptr) {
  auto node = std::make_unique<Node>();
  node->kind = kind, node->word = std::move(word), node->left = std::move(left), node->right = std::move(right);
  return node;
}

// The path of the key that a word names; "" if it names none.
std::string key_named(const std::string& word) {
  if (config::find_field(word) != nullptr) return word;
  std::string found;
  for (const config::Field& field : config::fields()) {
    const bool of_a_run = !field.path.starts_with("verify.") && !field.path.starts_with("study.") &&
                          !field.path.starts_with("bounds.") && !field.path.starts_with("run.");
    if (!of_a_run || !field.path.ends_with("." + word)) continue;
    if (found.empty() || field.path == "parallel." + word) found = field.path;
  }
  return found;
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

class Parser {
 public:
  Parser(const std::string& text, const std::string& key) : text_(text), key_(key) { advance(); }

  NodePtr whole() {
    NodePtr node = condition();
    if (!token_.empty()) fail("'and', 'or' or the end");
    return node;
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) const {
    throw ConfigError({{key_, text_,
                        fmt::format("must have {} at character {}{}", wanted, at_ + 1,
                                    token_.empty() ? ", where it ends" : ", instead of '" + token_ + "'"),
                        "", 0}});
  }

  void advance() {
    static constexpr std::array<std::string_view, 13> signs = {"==", "!=", "<=", ">=", "<", ">", "(",
                                                               ")",  "+",  "-",  "*",  "/", "%"};
    while (end_ < text_.size() && (text_[end_] == ' ' || text_[end_] == '\t' || text_[end_] == '\n')) ++end_;
    at_ = end_;
    quoted_ = false;
    const std::string_view rest = std::string_view(text_).substr(at_);
    if (rest.empty()) return token_.clear();
    if (rest.front() == '"' || rest.front() == '\'') {
      const std::size_t close = rest.find(rest.front(), 1);
      token_ = rest.substr(0, 1);
      if (close == std::string_view::npos) fail("the quotation mark that ends a text");
      token_ = rest.substr(1, close - 1), end_ = at_ + close + 1, quoted_ = true;
      return;
    }
    for (const std::string_view sign : signs) {
      if (!rest.starts_with(sign)) continue;
      token_ = sign, end_ = at_ + sign.size();
      return;
    }
    std::size_t length = 0;
    // A '-' within a word belongs to it: zb-v.
    while (length < rest.size() && (is_word(rest[length]) || (length > 0 && rest[length] == '-'))) ++length;
    token_ = rest.substr(0, std::max<std::size_t>(length, 1));
    if (length == 0) fail("a key, a number, a text or a sign");
    end_ = at_ + length;
  }

  bool is(std::string_view sign) const { return !quoted_ && token_ == sign; }
  bool takes(std::string_view sign) {
    if (!is(sign)) return false;
    advance();
    return true;
  }

  // Guards against stack overflow.
  struct Level {
    explicit Level(Parser& parser) : parser(parser) {
      if (parser.depth_ >= deepest) parser.fail(fmt::format("at most {} levels of parentheses", deepest));
      ++parser.depth_;
    }
    ~Level() { --parser.depth_; }
    Parser& parser;
  };

  NodePtr condition() {
    NodePtr node = conjunction();
    while (takes("or")) node = make(Node::Kind::either, "or", std::move(node), conjunction());
    return node;
  }

  NodePtr conjunction() {
    NodePtr node = negation();
    while (takes("and")) node = make(Node::Kind::both, "and", std::move(node), negation());
    return node;
  }

  NodePtr negation() {
    const Level level(*this);
    if (takes("not")) return make(Node::Kind::negation, "not", negation());
    if (!is("(")) return comparison();
    // A parenthesis may hold a condition or a sum: it is a condition unless an operator of sums follows it.
    const auto start = std::tuple(token_, at_, end_);
    advance();
    try {
      NodePtr node = condition();
      if (is(")")) {
        advance();
        const bool goes_on = is("+") || is("-") || is("*") || is("/") || is("%") || is("==") || is("!=") || is("<") ||
                             is("<=") || is(">") || is(">=");
        if (!goes_on) return node;
      }
    } catch (const ConfigError&) {
      // Then it must be a sum; if it is not, that error is reported.
    }
    std::tie(token_, at_, end_) = start;
    quoted_ = false;
    return comparison();
  }

  NodePtr comparison() {
    NodePtr left = sum();
    for (const std::string_view sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (takes(sign)) return make(Node::Kind::comparison, std::string(sign), std::move(left), sum());
    }
    fail("==, !=, <, <=, > or >=");
  }

  NodePtr sum() {
    NodePtr node = product();
    for (;;) {
      const std::string sign = token_;
      if (!takes("+") && !takes("-")) return node;
      node = make(Node::Kind::arithmetic, sign, std::move(node), product());
    }
  }

  NodePtr product() {
    NodePtr node = operand();
    for (;;) {
      const std::string sign = token_;
      if (!takes("*") && !takes("/") && !takes("%")) return node;
      node = make(Node::Kind::arithmetic, sign, std::move(node), operand());
    }
  }

  NodePtr operand() {
    const Level level(*this);
    if (quoted_) {
      NodePtr node = make(Node::Kind::text, token_);
      advance();
      return node;
    }
    if (takes("-")) return make(Node::Kind::arithmetic, "-", make(Node::Kind::number, "0"), operand());
    if (takes("(")) {
      NodePtr node = sum();
      if (!takes(")")) fail("')'");
      return node;
    }
    if (token_.empty() || !is_word(token_.front()) || is("and") || is("or") || is("not")) fail("a key, a number or a text");
    NodePtr node = make(Node::Kind::number, token_);
    const char* const last = token_.data() + token_.size();
    const auto [end, error] = std::from_chars(token_.data(), last, node->number);
    if (error != std::errc{} || end != last) {
      const std::string path = key_named(token_);
      node->kind = path.empty() ? Node::Kind::text : Node::Kind::key;
      if (!path.empty()) node->word = path;
    }
    advance();
    return node;
  }

  const std::string& text_;
  const std::string& key_;
  std::string token_;  // "" at the end
  bool quoted_ = false;
  std::size_t at_ = 0, end_ = 0;  // of the token
  int depth_ = 0;
};

class Evaluation {
 public:
  Evaluation(const Config& config, const std::string& text, const std::string& key) : config_(config), text_(text), key_(key) {}

  std::optional<bool> holds(const Node& node) const {
    switch (node.kind) {
      case Node::Kind::negation: {
        const auto value = holds(*node.left);
        return value ? std::optional(!*value) : std::nullopt;
      }
      case Node::Kind::both:
      case Node::Kind::either: {
        // One side may settle the result regardless of the other.
        const bool settles = node.kind == Node::Kind::either;
        const auto left = holds(*node.left), right = holds(*node.right);
        if (left == settles || right == settles) return settles;
        return left && right ? std::optional(!settles) : std::nullopt;
      }
      default: return compare(node);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { throw ConfigError({{key_, text_, why, "", 0}}); }

  static Operand value_of(const std::string& path, const Config& config) {
    const config::Field& field = *config::find_field(path);
    const config::Value value = field.get(config);
    if (config::is_automatic(value)) return Unknown{};
    if (const auto* flag = std::get_if<bool>(&value)) return std::string(*flag ? "true" : "false");
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
    if (const auto* whole = std::get_if<std::uint64_t>(&value)) return static_cast<double>(*whole);
    if (const auto* real = std::get_if<double>(&value)) return *real;
    const auto* word = std::get_if<std::string>(&value);
    if (word == nullptr) return config::yaml_text(value);
    return *word == "auto" ? Operand(Unknown{}) : Operand(*word);
  }

  Operand value(const Node& node) const {
    switch (node.kind) {
      case Node::Kind::number: return node.number;
      case Node::Kind::text: return node.word;
      case Node::Kind::key: return value_of(node.word, config_);
      default: break;
    }
    const Operand left = value(*node.left), right = value(*node.right);
    if (std::holds_alternative<Unknown>(left) || std::holds_alternative<Unknown>(right)) return Unknown{};
    const auto* a = std::get_if<double>(&left);
    const auto* b = std::get_if<double>(&right);
    if (a == nullptr || b == nullptr) fail(fmt::format("'{}' needs numbers on both sides", node.word));
    switch (node.word.front()) {
      case '+': return *a + *b;
      case '-': return *a - *b;
      case '*': return *a * *b;
      case '/': return *a / *b;
      default: return std::fmod(*a, *b);
    }
  }

  std::optional<bool> compare(const Node& node) const {
    const Operand left = value(*node.left), right = value(*node.right);
    if (std::holds_alternative<Unknown>(left) || std::holds_alternative<Unknown>(right)) return std::nullopt;
    const auto judge = [&](const auto& a, const auto& b) {
      const std::string& sign = node.word;
      if (sign == "==") return a == b;
      if (sign == "!=") return a != b;
      if (sign == "<") return a < b;
      if (sign == "<=") return a <= b;
      return sign == ">" ? a > b : a >= b;
    };
    const auto* a = std::get_if<double>(&left);
    const auto* b = std::get_if<double>(&right);
    if (a != nullptr && b != nullptr) return judge(*a, *b);
    if (a != nullptr || b != nullptr)
      fail(fmt::format("'{}' compares a text with a number: '{}' is no key; write a key as in the configuration", node.word,
                       std::get<std::string>(a != nullptr ? right : left)));
    return judge(std::get<std::string>(left), std::get<std::string>(right));
  }

  const Config& config_;
  const std::string& text_;
  const std::string& key_;
};

bool names_key(const Expression::Node& node) {
  return node.kind == Expression::Node::Kind::key || (node.left && names_key(*node.left)) ||
         (node.right && names_key(*node.right));
}

std::string first_word(const Expression::Node& node) { return node.left ? first_word(*node.left) : node.word; }

// A misspelt key would be a text, and a comparison of two texts always or never holds.
void require_keys(const Expression::Node& node, const std::string& text, const std::string& key) {
  if (node.kind == Expression::Node::Kind::comparison) {
    if (!names_key(node)) {
      throw ConfigError(
          {{key, text,
            fmt::format("'{}' is no key, and a comparison needs one; write a key as in the configuration", first_word(node)),
            "", 0}});
    }
    return;
  }
  for (const auto* side : {&node.left, &node.right}) {
    if (*side) require_keys(**side, text, key);
  }
}

}  // namespace

Expression::Expression(const std::string& text, const std::string& key) : text_(text), key_(key) {
  root_ = Parser(text_, key_).whole();
  require_keys(*root_, text_, key_);
}
Expression::Expression(Expression&&) noexcept = default;
Expression& Expression::operator=(Expression&&) noexcept = default;
Expression::~Expression() = default;

std::optional<bool> Expression::holds(const Config& config) const { return Evaluation(config, text_, key_).holds(*root_); }

}  // namespace plait::study
