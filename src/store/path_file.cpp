#include "store/path_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/hash.h"

namespace wp {
namespace {

constexpr uint64_t kMagic = 0x31656c6966505057;  // "WPPfile1"
constexpr uint32_t kVersion = 1;
constexpr uint64_t kRoot = 0x7061746820746f70;
constexpr size_t kNameBytesMax = 200;
constexpr int64_t kTokensMax = int64_t{1} << 28;

struct FileHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t unused;
  Origin origin;
  int64_t page_bytes, anchor_bytes;
  uint64_t domain;
  int64_t tokens, records, size_bytes;
  uint64_t tokens_hash;
  uint64_t header_hash;  // Of all above.
};
static_assert(std::is_trivially_copyable_v<FileHeader> && sizeof(FileHeader) == 96);

uint64_t hash_of(const FileHeader& header) { return hash_bytes(&header, offsetof(FileHeader, header_hash)); }

Error io(std::string_view what) { return {ErrorCode::io, cat(what, ": ", std::strerror(errno))}; }

}  // namespace

Result<void> check_file_name(const std::string& name) {
  const auto bad = [](auto&&... what) { return Error{ErrorCode::bad_request, cat("filename: ", what...)}; };
  if (name.empty()) return bad("expected a file's name, found an empty one");
  if (name.size() > kNameBytesMax) return bad("expected at most ", kNameBytesMax, " bytes, found ", name.size());
  if (name[0] == '.') return bad("expected a name that does not begin with a dot");
  for (const char c : name)
    if (c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return bad("expected a name without folders and control characters");
  return {};
}

Result<PathFileWriter> PathFileWriter::create(const std::string& folder, const std::string& name,
                                              const PathFileKind& kind, uint64_t domain, std::vector<TokenId> tokens) {
  static std::atomic<uint64_t> number{0};
  WP_ASSERT(check_file_name(name).ok() && !tokens.empty() && tokens.size() % kPageTokens == 0);
  PathFileWriter writer;
  writer.folder_ = folder;
  writer.final_ = cat(folder, "/", name);
  writer.temporary_ = cat(folder, "/.", name, ".", ::getpid(), ".", ++number, ".part");
  writer.kind_ = kind;
  writer.domain_ = domain;
  writer.keys_ = path_keys(kRoot, domain, tokens);
  writer.tokens_ = std::move(tokens);
  writer.file_ = File(::open(writer.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!writer.file_) return io("expected to write into the folder of saved slots, found");
  const size_t bytes = writer.tokens_.size() * sizeof(TokenId);
  WP_TRY(writer.write(writer.tokens_.data(), bytes, sizeof(FileHeader)));
  writer.size_bytes_ = static_cast<int64_t>(sizeof(FileHeader) + bytes);
  return writer;
}

PathFileWriter::~PathFileWriter() {
  if (file_) ::unlink(temporary_.c_str());
}

Result<void> PathFileWriter::write(const void* from, size_t size_bytes, int64_t offset) {
  for (size_t done = 0; done < size_bytes;) {
    const auto* bytes = static_cast<const char*>(from) + done;
    const ssize_t count = ::pwrite(file_.get(), bytes, size_bytes - done, offset + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return io("expected to write the file, found");
    done += static_cast<size_t>(count);
  }
  return {};
}

Result<void> PathFileWriter::add(PartKind kind, int64_t end, CaptureClass capture_class,
                                 std::span<const std::byte> bytes) {
  const auto at = static_cast<size_t>(end / kPageTokens);
  WP_ASSERT(at > 0 && at < keys_.size() && end % kPageTokens == 0);
  const auto page = std::span(tokens_).subspan((at - 1) * kPageTokens, kPageTokens);
  const RecordHeader header = make_header(kind, kind_.origin, domain_, keys_[at - 1], end, page, capture_class, bytes);
  WP_TRY(write(&header, sizeof header, size_bytes_));
  WP_TRY(write(bytes.data(), bytes.size(), size_bytes_ + static_cast<int64_t>(sizeof header)));
  size_bytes_ += static_cast<int64_t>(sizeof header + bytes.size());
  ++records_;
  return {};
}

Result<int64_t> PathFileWriter::finish() {
  FileHeader header{.magic = kMagic,
                    .version = kVersion,
                    .unused = 0,
                    .origin = kind_.origin,
                    .page_bytes = kind_.page_bytes,
                    .anchor_bytes = kind_.anchor_bytes,
                    .domain = domain_,
                    .tokens = static_cast<int64_t>(tokens_.size()),
                    .records = records_,
                    .size_bytes = size_bytes_,
                    .tokens_hash = hash_bytes(tokens_.data(), tokens_.size() * sizeof(TokenId)),
                    .header_hash = 0};
  header.header_hash = hash_of(header);
  WP_TRY(write(&header, sizeof header, 0));
  if (::fsync(file_.get()) != 0) return io("expected to bring the file to the disk, found");
  if (::rename(temporary_.c_str(), final_.c_str()) != 0) return io("expected to name the file, found");
  file_ = {};
  const File folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) return io("expected to bring the file's name to the disk, found");
  return size_bytes_;
}

Result<PathFileReader> PathFileReader::open(const std::string& folder, const std::string& name,
                                            const PathFileKind& kind) {
  WP_ASSERT(check_file_name(name).ok());
  PathFileReader reader;
  reader.name_ = name;
  reader.kind_ = kind;
  reader.file_ = File(::open(cat(folder, "/", name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!reader.file_ && errno == ENOENT)
    return Error{ErrorCode::not_found, cat("filename: expected a saved slot, found none named ", name)};
  struct stat status {};
  if (!reader.file_ || ::fstat(reader.file_.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return Error{ErrorCode::bad_file, cat(name, ": expected a plain file that can be read, found another kind")};
  WP_TRY(reader.read_front(status.st_size));
  return reader;
}

Result<void> PathFileReader::read(void* to, size_t size_bytes) {
  for (size_t done = 0; done < size_bytes;) {
    const ssize_t count = ::pread(file_.get(), static_cast<char*>(to) + done, size_bytes - done, offset_);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return Error{ErrorCode::bad_file, cat(name_, ": expected ", size_bytes, " bytes at ", offset_, ", found ", done)};
    done += static_cast<size_t>(count);
    offset_ += count;
  }
  return {};
}

Result<void> PathFileReader::read_front(int64_t found_bytes) {
  const auto bad = [&](auto&&... what) { return Error{ErrorCode::bad_file, cat(name_, ": ", what...)}; };
  FileHeader header;
  if (found_bytes < static_cast<int64_t>(sizeof header))
    return bad("expected a saved slot, found ", found_bytes, " bytes");
  WP_TRY(read(&header, sizeof header));
  if (header.magic != kMagic) return bad("expected a saved slot, found other bytes");
  if (header.version != kVersion) return bad("expected version ", kVersion, ", found ", header.version);
  if (header.header_hash != hash_of(header)) return bad("expected the header's checksum, found a damaged header");
  if (header.origin.model != kind_.origin.model)
    return bad("expected a slot of this model and tokenizer, found another's");
  if (header.origin.numerics != kind_.origin.numerics)
    return bad("expected numerics ", hex(kind_.origin.numerics), ", found ", hex(header.origin.numerics));
  if (header.page_bytes != kind_.page_bytes || header.anchor_bytes != kind_.anchor_bytes)
    return bad("expected pages of ", kind_.page_bytes, " and anchors of ", kind_.anchor_bytes, " bytes, found ",
               header.page_bytes, " and ", header.anchor_bytes);
  if (header.size_bytes != found_bytes)
    return bad("expected ", header.size_bytes, " bytes, found ", found_bytes, " (truncated)");
  if (header.tokens <= 0 || header.tokens > kTokensMax || header.tokens % kPageTokens != 0 || header.records <= 0 ||
      header.tokens * static_cast<int64_t>(sizeof(TokenId)) > found_bytes)
    return bad("expected whole pages of tokens, found ", header.tokens, " tokens in ", header.records, " records");
  tokens_.resize(static_cast<size_t>(header.tokens));
  WP_TRY(read(tokens_.data(), tokens_.size() * sizeof(TokenId)));
  if (hash_bytes(tokens_.data(), tokens_.size() * sizeof(TokenId)) != header.tokens_hash)
    return bad("expected the tokens' checksum, found damaged tokens");
  domain_ = header.domain;
  keys_ = path_keys(kRoot, domain_, tokens_);
  size_bytes_ = found_bytes;
  records_left_ = header.records;
  return {};
}

Result<PathFileReader::Part> PathFileReader::next() {
  WP_ASSERT(!at_end());
  const int64_t begin = offset_;
  const auto bad = [&](auto&&... what) {
    return Error{ErrorCode::bad_file, cat(name_, ": record at ", begin, ": ", what...)};
  };
  std::array<std::byte, sizeof(RecordHeader)> front;
  WP_TRY(read(front.data(), front.size()));
  const auto header = parse_header(front);
  if (!header.ok()) return bad(header.error().message);
  const bool page = header->kind == PartKind::page;
  const auto at = static_cast<size_t>(header->end / kPageTokens);
  // Pages from the top, an anchor behind the page at whose end it stands.
  if (header->end != (page ? page_end_ + kPageTokens : page_end_) || at >= keys_.size() || at == 0)
    return bad("expected the next page or its anchor, found one at ", header->end);
  if (header->origin != kind_.origin || header->domain != domain_ || header->parent != keys_[at - 1] ||
      header->key != keys_[at] || header->payload_bytes != (page ? kind_.page_bytes : kind_.anchor_bytes))
    return bad("expected a part of this path, found another's");
  Part part{header->kind, header->end, static_cast<CaptureClass>(header->capture_class), {}};
  part.bytes.resize(static_cast<size_t>(header->payload_bytes));
  WP_TRY(read(part.bytes.data(), part.bytes.size()));
  if (hash_bytes(part.bytes.data(), part.bytes.size()) != header->payload_hash)
    return bad("expected its checksum, found damaged bytes");
  page_end_ = header->end;
  --records_left_;
  return part;
}

}  // namespace wp
