// The page in a browser: that its charts are drawn, without a complaint on the console.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "core/temporary_directory.h"
#include "study/report/report.h"
#include "study/report/writers.h"
#include "synthetic_study.h"

namespace plait::study {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string output_of(const std::string& command) {
  std::string output;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) output.append(buffer.data(), n);
  ::pclose(pipe);
  return output;
}

std::string browser() {
  const std::string found = output_of("command -v chromium chromium-browser google-chrome | head -n 1");
  return found.substr(0, found.find('\n'));
}

struct Shown {
  std::string dom, console;
};

Shown show(const std::string& folder, const std::string& page) {
  std::ofstream(folder + "/report.html", std::ios::binary) << page;
  Shown shown;
  shown.dom = output_of("timeout 120 " + browser() +
                        " --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking "
                        "--no-first-run --user-data-dir=" +
                        folder +
                        "/profile --enable-logging=stderr --virtual-time-budget=2000 "
                        "--window-size=1400,1000 --dump-dom file://" +
                        folder + "/report.html 2>" + folder + "/stderr");
  std::ifstream file(folder + "/stderr");
  for (std::string line; std::getline(file, line);) {
    if (line.find("CONSOLE") != std::string::npos) shown.console += line + "\n";
  }
  return shown;
}

TEST(ReportBrowser, DrawsEveryChartWithoutAComplaint) {
  if (browser().empty()) GTEST_SKIP() << "no chromium here";
  const plait::test::TemporaryDirectory folder;
  StudyData data = test::study({.points = 6});
  test::add_every_state(data);
  test::add_simulated(data);
  const Shown shown = show(folder.path(), to_html(make_report(data)));
  // The script sets it when all are drawn. What the page's security policy stops would be on the console.
  EXPECT_THAT(shown.dom, HasSubstr("data-charts=\"7\""));
  EXPECT_EQ(shown.console, "");
}

TEST(ReportBrowser, ComplaintsAreSeen) {
  if (browser().empty()) GTEST_SKIP() << "no chromium here";
  const plait::test::TemporaryDirectory folder;
  std::string page = to_html(make_report(test::study()));
  page.insert(page.find("</main>"), "<img src=\"https://example.invalid/x.png\">");
  EXPECT_THAT(show(folder.path(), page).console, HasSubstr("Content Security Policy"));
}

}  // namespace
}  // namespace plait::study
