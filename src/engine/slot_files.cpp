#include "engine/slot_files.h"

#include <filesystem>
#include <utility>

#include "engine/path_transfer.h"

namespace wp {
namespace {

// Whichever way it ends, the engine learns that nobody waits any more.
struct Ended {
  PathTransfer& transfer;
  ~Ended() { transfer.abandon(); }
};

}  // namespace

SlotFiles::SlotFiles(Engine& engine, std::string folder, const Origin& origin)
    : engine_(engine),
      folder_(std::move(folder)),
      kind_{origin, engine.model_info().page_bytes, engine.model_info().anchor_bytes} {}

Result<std::unique_ptr<SlotFiles>> SlotFiles::open(Engine& engine, const std::string& folder, const Origin& origin) {
  std::error_code fault;
  std::filesystem::create_directories(folder, fault);
  if (fault) return Error{ErrorCode::io, cat("--slot-save-path ", folder, ": ", fault.message())};
  return std::unique_ptr<SlotFiles>(new SlotFiles(engine, folder, origin));
}

Result<SlotFiles::Moved> SlotFiles::save(int32_t slot, const std::string& name, std::optional<uint64_t> domain) {
  WP_TRY(check_file_name(name));
  const auto transfer = engine_.transfer({PathTransferOrder::Kind::send, slot, domain, {}});
  const Ended ended{*transfer};
  WP_TRY(PathTransfer::Path path, transfer->path());
  const auto tokens = static_cast<int64_t>(path.tokens.size());
  WP_TRY(PathFileWriter writer, PathFileWriter::create(folder_, name, kind_, path.domain, std::move(path.tokens)));
  while (true) {
    WP_TRY(std::optional<PathPart> part, transfer->take());
    if (!part) break;
    WP_TRY(writer.add(part->kind, part->end, part->capture_class, part->bytes));
  }
  WP_TRY(const int64_t bytes, writer.finish());
  return Moved{tokens, bytes};
}

Result<SlotFiles::Moved> SlotFiles::restore(int32_t slot, const std::string& name, std::optional<uint64_t> domain) {
  WP_TRY(check_file_name(name));
  WP_TRY(PathFileReader reader, PathFileReader::open(folder_, name, kind_));
  if (domain && *domain != reader.domain())
    return Error{ErrorCode::bad_file, cat(name, ": expected a slot of this cache domain, found another's")};
  const auto transfer = engine_.transfer({PathTransferOrder::Kind::receive, slot, reader.domain(), reader.tokens()});
  const Ended ended{*transfer};
  while (!reader.at_end()) {
    WP_TRY(PathFileReader::Part part, reader.next());
    WP_TRY(transfer->give({part.kind, part.end, part.capture_class, std::move(part.bytes)}));
  }
  WP_TRY(const int64_t tokens, transfer->finish());
  return Moved{tokens, reader.size_bytes()};
}

}  // namespace wp
