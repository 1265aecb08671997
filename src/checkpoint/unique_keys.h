// Refuses JSON objects with a repeated name: readers would differ on which of the two counts.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace plait::checkpoint {

// A `watch` for parse_json (core/json_file.h). `refuse`, which throws, gets the repeated name and the number of objects and
// lists around it: 1 in the outermost object.
inline nlohmann::json::parser_callback_t unique_keys(std::function<void(const std::string& key, int depth)> refuse) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> open;  // the names of each object that has begun and not ended
  return [refuse = std::move(refuse), open = std::move(open)](int depth, Event event, const nlohmann::json& value) mutable {
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(value.get<std::string>()).second) refuse(value.get<std::string>(), depth);
    return true;
  };
}

}  // namespace plait::checkpoint
