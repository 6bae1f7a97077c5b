// Why a prefix was restored or not: the turns of a replay, each with a sentence. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "measure/replay.h"

namespace wp::measure {

std::string why_header();
// One line, and where the turn is no full hit the lines below it that say why.
std::string why_lines(const TurnResult& turn);
// Turns by miss reason, tokens computed, and what would have had to be.
std::string why_summary(const std::vector<TurnResult>& turns);
Json why_json(const std::vector<TurnResult>& turns);

}  // namespace wp::measure
