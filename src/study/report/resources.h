// The resources of a report's page: files of this folder and of the charting library, made part of the program by
// cmake/PlaitResources.cmake.
#pragma once

#include <string_view>

namespace plait::study::resources {

extern const std::string_view page_mustache, table_mustache, page_css, page_js;
extern const std::string_view chart_min_js;   // Chart.js (MIT licence)
extern const std::string_view chart_licence;  // from Debian's package

}  // namespace plait::study::resources
