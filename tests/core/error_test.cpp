// What the error types say, and how it gets to a terminal.
#include "core/error.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "core/message.h"

namespace plait {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ErrorTest, ConfigErrorListsEveryProblemWithPlaceValueRuleAndNearestKey) {
  const ConfigError error(
      {{"train.steps", "-5", "must be at least 1", "", 12}, {"model.layes", "", "unknown key", "model.layers", 0}});
  EXPECT_THAT(error.what(), HasSubstr("2 problems in the input:"));
  EXPECT_THAT(error.what(), HasSubstr("\n  train.steps=-5 (line 12): must be at least 1"));
  EXPECT_THAT(error.what(), HasSubstr("\n  model.layes: unknown key; did you mean 'model.layers'?"));
  EXPECT_THAT(error.what(), Not(HasSubstr("line 0")));
  ASSERT_EQ(error.problems().size(), 2u);
  EXPECT_EQ(error.problems()[1].nearest, "model.layers");
}

TEST(ErrorTest, OneProblemIsSingular) {
  EXPECT_THAT(ConfigError(std::vector<ConfigProblem>{{"data.train", "", "matches no file", "", 3}}).what(),
              HasSubstr("1 problem in the input:"));
}

TEST(ErrorTest, WhatTheStandardLibraryThrowsIsTold) {
  EXPECT_THAT(error_text(std::bad_alloc()), AllOf(HasSubstr("out of memory on the host"), HasSubstr("ulimit -v")));
  // As a constructor of std::thread.
  EXPECT_THAT(error_text(std::system_error(EAGAIN, std::generic_category())),
              AllOf(HasSubstr("cannot start a thread: Resource temporarily unavailable"), HasSubstr("ulimit -u")));
  EXPECT_EQ(error_text(std::system_error(EIO, std::generic_category())), "Input/output error");
  EXPECT_EQ(error_text(ConfigError("a: b")), "a: b");
}

TEST(ErrorTest, NoControlCharacterOfAFileGetsToTheTerminal) {
  testing::internal::CaptureStderr();
  message_to_stderr("a: tensor '\x1b[2J\r\x7fé': bad\n\tb");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "plait: a: tensor '?[2J??é': bad\n\tb\n");
}

TEST(ErrorTest, RequireThrowsWithMessageAndPlace) {
  require(true, "never seen");
  try {
    require(false, std::string("shapes differ"));
    FAIL() << "require(false) must throw";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("shapes differ"), HasSubstr("error_test.cpp:"), HasSubstr("TestBody")));
  }
}

TEST(ErrorTest, TheFourClassesAreErrorsAndDifferent) {
  EXPECT_THROW(throw ConfigError("c"), Error);
  EXPECT_THROW(throw DeviceError("d"), Error);
  EXPECT_THROW(throw CommError("m"), Error);
  EXPECT_THROW(require(false, "i"), Error);
  try {
    throw CommError("peer 3 is gone");
  } catch (const DeviceError&) {
    FAIL() << "a CommError is no DeviceError";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "peer 3 is gone");
  }
}

}  // namespace
}  // namespace plait
