// A conversation's path in one file: header, token ids, then pages and anchors from the top, each a record as in a
// segment. Written under a temporary name and renamed when it is whole, so that no name ever stands for half a file.
// Believes nothing it reads: what does not fit is refused with what was expected and what was found. One thread each.
#pragma once

#include <string>
#include <vector>

#include "store/file.h"
#include "store/record.h"

namespace wp {

struct PathFileKind {
  Origin origin;
  int64_t page_bytes = 0, anchor_bytes = 0;
};

// Basename only: no path, no hidden file, nothing that a terminal or a file system would read otherwise.
Result<void> check_file_name(const std::string& name);

class PathFileWriter {
 public:
  // `name` was checked. The folder is there.
  static Result<PathFileWriter> create(const std::string& folder, const std::string& name, const PathFileKind& kind,
                                       uint64_t domain, std::vector<TokenId> tokens);
  PathFileWriter(PathFileWriter&&) = default;
  PathFileWriter& operator=(PathFileWriter&&) = delete;
  ~PathFileWriter();  // Leaves nothing behind unless finished.

  Result<void> add(PartKind kind, int64_t end, CaptureClass capture_class, std::span<const std::byte> bytes);
  // Header, fsync, rename. The file's size.
  Result<int64_t> finish();

 private:
  PathFileWriter() = default;
  Result<void> write(const void* from, size_t size_bytes, int64_t offset);

  std::string temporary_, final_, folder_;
  File file_;
  PathFileKind kind_;
  uint64_t domain_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<uint64_t> keys_;  // keys_[i]: of the node that ends at i pages.
  int64_t size_bytes_ = 0, records_ = 0;
};

class PathFileReader {
 public:
  struct Part {
    PartKind kind;
    int64_t end;
    CaptureClass capture_class;
    std::vector<std::byte> bytes;
  };
  // not_found: no such file. bad_file: it is not this engine's, not whole, or damaged.
  static Result<PathFileReader> open(const std::string& folder, const std::string& name, const PathFileKind& kind);

  uint64_t domain() const { return domain_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  int64_t size_bytes() const { return size_bytes_; }
  bool at_end() const { return records_left_ == 0; }
  Result<Part> next();  // Not at the end.

 private:
  PathFileReader() = default;
  Result<void> read(void* to, size_t size_bytes);
  Result<void> read_front(int64_t found_bytes);

  std::string name_;
  File file_;
  PathFileKind kind_;
  uint64_t domain_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<uint64_t> keys_;
  int64_t size_bytes_ = 0, offset_ = 0, records_left_ = 0, page_end_ = 0;
};

}  // namespace wp
