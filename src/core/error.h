// Error types of plait and the checks that throw them.
//
// Four classes, by who has to act:
//   ConfigError    the user's input is wrong; carries every problem found, not only the first
//   DeviceError    a device or one of its libraries refused a call
//   CommError      a peer, a rendezvous or a collective failed
//   InternalError  plait broke one of its own contracts
#pragma once

#include <exception>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

namespace plait {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  const char* what() const noexcept override { return message_.empty() ? std::runtime_error::what() : message_.c_str(); }
  // Puts `prefix` before the message, for example the rank that failed. Catch by reference, add the prefix and `throw;`: the
  // error keeps its class and all its data.
  void add_prefix(const std::string& prefix) { message_ = prefix + what(); }

 private:
  std::string message_;  // with prefixes; empty: none were added
};

// One thing wrong with the user's input. `line` is 1-based, 0 when the value did not come from a file (a default or --set).
struct ConfigProblem {
  std::string path;     // "train.optimizer.lr", or a file's name
  std::string value;    // as written by the user; empty when a key is missing
  std::string rule;     // the rule that the value should satisfy
  std::string nearest;  // nearest valid key, for unknown keys; may be empty
  int line = 0;
};

class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message);
  explicit ConfigError(std::vector<ConfigProblem> problems);
  const std::vector<ConfigProblem>& problems() const { return problems_; }

 private:
  std::vector<ConfigProblem> problems_;
};

class DeviceError : public Error {
 public:
  using Error::Error;
};

// A device has too little memory for a request. The message says "out of memory".
class OutOfMemoryError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

class CommError : public Error {
 public:
  using Error::Error;
};

// A peer is gone. Only the peer's own error gives the reason.
class PeerLostError : public CommError {
 public:
  using CommError::CommError;
};

class InternalError : public Error {
 public:
  using Error::Error;
};

// "file.cpp:12 in function", for messages.
std::string to_string(const std::source_location& where);

// Throws InternalError with `message` and the caller's location unless `condition` holds.
void require(bool condition, const char* message, std::source_location where = std::source_location::current());
void require(bool condition, const std::string& message, std::source_location where = std::source_location::current());

// The text of an exception for the user: what() of an Error, plus a remedy if the standard library's text says too little.
std::string error_text(const std::exception& error);

// The system's message for the call that has just failed.
std::string errno_text();

// The first 20, which are enough to show what is wrong, and the number of the rest: "and 980 more: WHAT".
std::vector<ConfigProblem> first_problems(std::vector<ConfigProblem> problems, const std::string& what);

}  // namespace plait
