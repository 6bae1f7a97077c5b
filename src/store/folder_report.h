// What a folder of the disk tier holds, record by record, for people. Reads only, takes no lock, believes nothing it
// finds and follows no link: a server may be writing there, and the folder may be anybody's. Any thread.
#pragma once

#include <string>
#include <vector>

#include "store/record.h"

namespace wp {

enum class RecordState : uint8_t {
  listed,   // The header is good, its bytes were not read.
  good,     // They were, and have their checksum.
  damaged,  // They have not.
};
const char* name(RecordState state);

struct RecordReport {
  std::string segment;  // File name.
  int64_t offset = 0;
  RecordHeader header{};
  int64_t age_s = 0;  // Of the segment's last write: the record is at least so old.
  RecordState state = RecordState::listed;
};

// A segment ends in this: nothing behind it can be found.
struct TailReport {
  std::string segment;
  int64_t offset = 0, bytes = 0;
  bool torn = false;   // Half-written, as a killed server leaves it; false: damaged.
  std::string reason;  // What was expected and what was found.
};

struct FolderReport {
  int64_t segments = 0, bytes = 0;
  std::vector<RecordReport> records;
  std::vector<TailReport> tails;
  int64_t damaged() const;  // Records and tails; what is torn is not.
};

// Whether the disk tier has been in this folder, by its files' names.
bool is_cache_folder(const std::string& folder);

// bad_file where it has not. `verify` reads every byte and checks it.
Result<FolderReport> read_cache_folder(const std::string& folder, bool verify);

}  // namespace wp
