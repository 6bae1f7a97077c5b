#include "store/disk_tier.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/hash.h"
#include "store/file.h"
#include "store/segment_name.h"

namespace wp {
namespace {

constexpr int64_t kSegmentBytesMin = int64_t{64} << 10;

std::string reason() { return std::strerror(errno); }

struct Segment {
  std::string path;
  File file;
  int64_t bytes = 0;       // Whole records.
  int64_t live_bytes = 0;  // Of these, what the index knows.
};
using SegmentPointer = std::shared_ptr<Segment>;  // A reader keeps a segment open that is evicted meanwhile.

struct Found {
  SegmentPointer segment;
  Place place;  // `where` is the segment's number.
};

struct Pending {
  RecordHeader header;
  std::vector<std::byte> bytes;
};

struct Reading {
  std::shared_ptr<DiskLoad> load;
  std::vector<Found> pages;
  Found anchor;
  uint64_t domain = 0;
  std::vector<TokenId> tokens;  // [0, load->end)
  std::function<void()> ring;
};

}  // namespace

int64_t FileLayer::read(int file, void* to, int64_t size_bytes, int64_t offset) {
  return ::pread(file, to, static_cast<size_t>(size_bytes), offset);
}
int64_t FileLayer::write(int file, const void* from, int64_t size_bytes, int64_t offset) {
  return ::pwrite(file, from, static_cast<size_t>(size_bytes), offset);
}

struct DiskTier::Impl {
  DiskTierOptions options;
  FileLayer system_files;
  FileLayer* files = nullptr;
  Clock* clock = nullptr;
  File lock;
  uint64_t root = 0;

  mutable std::mutex mutex;
  std::condition_variable to_write, to_read, written;
  std::optional<KeptIndex> index;
  std::map<uint64_t, SegmentPointer> segments;  // By number; the last is written to, unless it is closed.
  uint64_t next_number = 1;
  bool segment_open = false;
  std::deque<Pending> pending;
  std::deque<Reading> readings;
  bool writing = false, stop = false;
  const DiskLoad* given_up = nullptr;
  DiskTierStats stats;
  std::thread writer, reader;

  int64_t bytes_of(PartKind kind) const { return kind == PartKind::page ? options.page_bytes : options.anchor_bytes; }
  int64_t record_bytes(PartKind kind) const { return static_cast<int64_t>(sizeof(RecordHeader)) + bytes_of(kind); }

  bool read_all(int file, void* to, int64_t size_bytes, int64_t offset);
  bool write_all(int file, const void* from, int64_t size_bytes, int64_t offset);
  Result<void> open_folder();
  Result<void> read_root();
  void read_segment(uint64_t number, const std::string& path);
  SegmentPointer segment_for_writing();
  bool write_record(Segment& segment, const Pending& record);
  void count_live(PartKind kind, Place place, int64_t sign);
  bool know(const RecordHeader& header, Place place);
  void forget(PartKind kind, uint64_t key);
  void give_up_least();
  uint64_t emptiest_segment() const;
  void move_record(std::unique_lock<std::mutex>& guard, uint64_t from, int64_t offset, const RecordHeader& header);
  void clean(std::unique_lock<std::mutex>& guard, uint64_t number);
  void keep_limit(std::unique_lock<std::mutex>& guard);
  void write_loop();
  void read_loop();
  bool read_part(const Found& found, PartKind kind, const Reading& reading, int64_t end, std::vector<std::byte>& bytes,
                 CaptureClass* capture_class);
  bool read_path(const Reading& reading);
};

bool DiskTier::Impl::read_all(int file, void* to, int64_t size_bytes, int64_t offset) {
  for (int64_t done = 0; done < size_bytes;) {
    const int64_t count = files->read(file, static_cast<char*>(to) + done, size_bytes - done, offset + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += count;
  }
  return true;
}

bool DiskTier::Impl::write_all(int file, const void* from, int64_t size_bytes, int64_t offset) {
  for (int64_t done = 0; done < size_bytes;) {
    const int64_t count = files->write(file, static_cast<const char*>(from) + done, size_bytes - done, offset + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += count;
  }
  return true;
}

Result<void> DiskTier::Impl::open_folder() {
  const std::string& folder = options.folder;
  std::error_code fault;
  std::filesystem::create_directories(folder, fault);
  if (fault) return Error{ErrorCode::io, cat("cache folder ", folder, ": ", fault.message())};
  lock = File(::open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock) return Error{ErrorCode::io, cat("cache folder ", folder, ": expected to write there, found: ", reason())};
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{ErrorCode::unavailable, cat("cache folder ", folder, ": in use by another server")};
  WP_TRY(read_root());
  index.emplace(options.page_bytes, options.anchor_bytes, Seed{0});
  index->set_root(root);
  std::map<uint64_t, std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, fault)) {
    const std::optional<uint64_t> number = segment_number(entry.path().filename().string());
    if (number) found[*number] = entry.path().string();
  }
  if (fault) return Error{ErrorCode::io, cat("cache folder ", folder, ": ", fault.message())};
  for (const auto& [number, path] : found) read_segment(number, path);
  std::unique_lock guard(mutex);
  keep_limit(guard);
  return {};
}

// A folder's own start of all keys. Nobody outside knows it, so nobody can make two prompts of one key.
Result<void> DiskTier::Impl::read_root() {
  const std::string path = options.folder + "/root";
  File file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return Error{ErrorCode::io, cat(path, ": expected to write it, found: ", reason())};
  if (::pread(file.get(), &root, sizeof root, 0) == sizeof root) return {};
  std::random_device random;
  root = (uint64_t{random()} << 32) | random();
  if (::pwrite(file.get(), &root, sizeof root, 0) != sizeof root || ::fsync(file.get()) != 0)
    return Error{ErrorCode::io, cat(path, ": expected to write it, found: ", reason())};
  return {};
}

// Headers alone: bytes are checked when they are read. What follows a half-written record cannot be found.
void DiskTier::Impl::read_segment(uint64_t number, const std::string& path) {
  next_number = std::max(next_number, number + 1);
  auto segment = std::make_shared<Segment>();
  segment->path = path;
  segment->file = File(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!segment->file || ::fstat(segment->file.get(), &status) != 0) {
    ++stats.read_errors;
    return;
  }
  segments[number] = segment;
  int64_t offset = 0;
  while (offset < status.st_size) {
    std::array<std::byte, sizeof(RecordHeader)> bytes;
    const bool room = status.st_size - offset >= static_cast<int64_t>(bytes.size());
    if (!room || !read_all(segment->file.get(), bytes.data(), bytes.size(), offset)) break;
    const auto header = parse_header(bytes);
    const int64_t left = status.st_size - offset - static_cast<int64_t>(bytes.size());
    if (!header.ok() || header->payload_bytes > left) break;
    const bool own = header->origin == options.origin && header->payload_bytes == bytes_of(header->kind);
    if (!own || !know(*header, {number, offset})) ++stats.foreign;
    offset += static_cast<int64_t>(bytes.size()) + header->payload_bytes;
  }
  if (offset < status.st_size) ++stats.torn;
  segment->bytes = status.st_size;
  stats.bytes += segment->bytes;
}

// Under the mutex. A segment from an earlier run is never written to: what follows its last record may be anything.
SegmentPointer DiskTier::Impl::segment_for_writing() {
  if (segment_open && segments.rbegin()->second->bytes < options.segment_bytes) return segments.rbegin()->second;
  segment_open = false;
  auto segment = std::make_shared<Segment>();
  segment->path = cat(options.folder, "/", next_number, kSegmentSuffix);
  segment->file = File(::open(segment->path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!segment->file) return nullptr;
  segments[next_number++] = segment;
  segment_open = true;
  return segment;
}

// Bytes first, then the header: a reader of the file sees a whole record or zeros.
bool DiskTier::Impl::write_record(Segment& segment, const Pending& record) {
  const auto header_bytes = static_cast<int64_t>(sizeof record.header);
  const auto payload_bytes = static_cast<int64_t>(record.bytes.size());
  return write_all(segment.file.get(), record.bytes.data(), payload_bytes, segment.bytes + header_bytes) &&
         write_all(segment.file.get(), &record.header, header_bytes, segment.bytes);
}

void DiskTier::Impl::count_live(PartKind kind, Place place, int64_t sign) {
  const auto segment = segments.find(place.where);  // 0 is none.
  if (segment != segments.end()) segment->second->live_bytes += sign * record_bytes(kind);
}

// A later record of a part takes the place of an earlier one.
bool DiskTier::Impl::know(const RecordHeader& header, Place place) {
  const auto before = index->find(header.kind, header.key);
  if (!index->add(header, place, clock->now_ns())) return false;
  if (before) count_live(header.kind, before->place, -1);
  count_live(header.kind, place, 1);
  return true;
}

void DiskTier::Impl::forget(PartKind kind, uint64_t key) {
  if (const auto place = index->remove(kind, key)) count_live(kind, *place, -1);
}

// Until a quarter of the room is for what nobody wants any more: with less, cleaning would copy the same all the time.
void DiskTier::Impl::give_up_least() {
  const auto live = [&] {
    int64_t bytes = 0;
    for (const auto& [number, segment] : segments) bytes += segment->live_bytes;
    return bytes;
  };
  while (live() > options.limit_bytes / 8 * 5) {
    const auto dropped = index->drop_least(clock->now_ns());
    if (dropped.empty()) return;
    for (const KeptIndex::Dropped& part : dropped) count_live(part.kind, part.place, -1);
    stats.evicted += std::ssize(dropped);
  }
}

// Of those that are closed, the one with the most bytes to win; 0: none.
uint64_t DiskTier::Impl::emptiest_segment() const {
  uint64_t best = 0;
  int64_t most = -1;
  for (const auto& [number, segment] : segments) {
    if (segment_open && number == segments.rbegin()->first) continue;
    const int64_t won = segment->bytes - segment->live_bytes;
    if (won > most) {
      most = won;
      best = number;
    }
  }
  return best;
}

// Behind the last record. Its checksum goes with it, and is checked when it is read for a request.
void DiskTier::Impl::move_record(std::unique_lock<std::mutex>& guard, uint64_t from, int64_t offset,
                                 const RecordHeader& header) {
  const Place before{from, offset};
  const auto wanted = [&] {
    const auto kept = index->find(header.kind, header.key);
    return kept && kept->place == before;
  };
  if (!wanted()) return;
  const SegmentPointer source = segments.at(from), target = segment_for_writing();
  guard.unlock();
  Pending record{header, std::vector<std::byte>(static_cast<size_t>(header.payload_bytes))};
  const bool was_read = read_all(source->file.get(), record.bytes.data(), header.payload_bytes,
                                 offset + static_cast<int64_t>(sizeof header));
  const bool good = was_read && target && write_record(*target, record);
  guard.lock();
  if (!was_read) ++stats.read_errors;
  else if (!good) ++stats.write_errors;
  if (!good) {
    if (wanted()) forget(header.kind, header.key);
    return;
  }
  const Place after{segments.rbegin()->first, target->bytes};
  target->bytes += record_bytes(header.kind);
  stats.bytes += record_bytes(header.kind);
  ++stats.moved;
  if (wanted()) know(header, after);
}

// The segment goes; what is wanted of it is moved first. The mutex is free while bytes move.
void DiskTier::Impl::clean(std::unique_lock<std::mutex>& guard, uint64_t number) {
  const SegmentPointer segment = segments.at(number);
  int64_t offset = 0;
  while (segment->live_bytes > 0 && offset < segment->bytes) {
    std::array<std::byte, sizeof(RecordHeader)> front;
    guard.unlock();
    const bool was_read = read_all(segment->file.get(), front.data(), static_cast<int64_t>(front.size()), offset);
    guard.lock();
    const auto header = parse_header(front);
    if (!was_read) ++stats.read_errors;
    if (!was_read || !header.ok()) break;
    move_record(guard, number, offset, *header);
    offset += static_cast<int64_t>(front.size()) + header->payload_bytes;
  }
  index->forget_all_at(number);  // What could not be found again.
  segments.erase(number);
  stats.bytes -= segment->bytes;
  ++stats.segments_evicted;
  ::unlink(segment->path.c_str());
}

void DiskTier::Impl::keep_limit(std::unique_lock<std::mutex>& guard) {
  const int64_t goal = options.limit_bytes - options.limit_bytes / 8;  // A segment less, while one is being cleaned.
  if (options.limit_bytes <= 0) return;
  while (stats.bytes > goal && !segments.empty()) {
    give_up_least();
    uint64_t number = emptiest_segment();
    if (number == 0) {
      segment_open = false;  // The only one.
      number = segments.begin()->first;
    }
    // Where all of it is wanted, though less than the limit should be, moving would win nothing.
    if (segments.at(number)->live_bytes >= segments.at(number)->bytes) {
      index->forget_all_at(number);
      segments.at(number)->live_bytes = 0;
    }
    clean(guard, number);
  }
}

void DiskTier::Impl::write_loop() {
  std::unique_lock guard(mutex);
  while (true) {
    to_write.wait(guard, [&] { return stop || !pending.empty(); });
    if (pending.empty()) return;
    Pending record = std::move(pending.front());
    pending.pop_front();
    const SegmentPointer segment = segment_for_writing();
    writing = true;
    guard.unlock();
    seal(record.header, record.bytes);  // Here, since whoever put it has no time for a hundred megabytes.
    const bool good = segment && write_record(*segment, record);
    guard.lock();
    const int64_t size_bytes = record_bytes(record.header.kind);
    stats.pending_bytes -= size_bytes;
    stats.anchors_pending -= record.header.kind == PartKind::anchor;
    if (good) {
      const int64_t offset = std::exchange(segment->bytes, segment->bytes + size_bytes);
      stats.bytes += size_bytes;
      ++stats.written;
      stats.written_bytes += size_bytes;
      know(record.header, {segments.rbegin()->first, offset});
      keep_limit(guard);
    } else {
      // The next record begins where this one did.
      forget(record.header.kind, record.header.key);
      ++stats.write_errors;
    }
    writing = false;
    written.notify_all();
  }
}

bool DiskTier::Impl::read_part(const Found& found, PartKind kind, const Reading& reading, int64_t end,
                               std::vector<std::byte>& bytes, CaptureClass* capture_class) {
  std::array<std::byte, sizeof(RecordHeader)> front;
  bytes.resize(static_cast<size_t>(bytes_of(kind)));
  const int file = found.segment->file.get();
  const auto front_bytes = static_cast<int64_t>(front.size());
  if (!read_all(file, front.data(), front_bytes, found.place.offset) ||
      !read_all(file, bytes.data(), bytes_of(kind), found.place.offset + front_bytes)) {
    const std::lock_guard guard(mutex);
    ++stats.read_errors;
    return false;
  }
  const auto header = parse_header(front);
  const auto tokens = std::span(reading.tokens).subspan(static_cast<size_t>(end - kPageTokens), kPageTokens);
  const bool good =
      header.ok() && header->kind == kind && header->origin == options.origin && header->domain == reading.domain &&
      header->end == end && std::equal(tokens.begin(), tokens.end(), header->tokens.begin()) &&
      header->payload_bytes == bytes_of(kind) && header->payload_hash == hash_bytes(bytes.data(), bytes.size());
  if (!good) {
    const std::lock_guard guard(mutex);
    ++stats.corrupt;
    return false;
  }
  if (capture_class) *capture_class = static_cast<CaptureClass>(header->capture_class);
  return true;
}

// A part that cannot be had is forgotten, so that it is written again when it is next computed.
bool DiskTier::Impl::read_path(const Reading& reading) {
  DiskLoad& load = *reading.load;
  uint64_t key = root;
  const auto lose = [&](PartKind kind, const Found& found) {
    const std::lock_guard guard(mutex);
    const auto kept = index->find(kind, key);
    if (kept && kept->place == found.place) forget(kind, key);  // Else it was moved meanwhile.
    return false;
  };
  for (int64_t end = kPageTokens; end <= load.end; end += kPageTokens) {
    const auto tokens = std::span(reading.tokens).subspan(static_cast<size_t>(end - kPageTokens), kPageTokens);
    key = node_key(key, reading.domain, tokens);
    if (end <= load.begin) continue;
    const auto at = static_cast<size_t>((end - load.begin) / kPageTokens - 1);
    if (!read_part(reading.pages[at], PartKind::page, reading, end, load.pages[at], nullptr))
      return lose(PartKind::page, reading.pages[at]);
  }
  if (!read_part(reading.anchor, PartKind::anchor, reading, load.end, load.anchor, &load.capture_class))
    return lose(PartKind::anchor, reading.anchor);
  const std::lock_guard guard(mutex);
  index->use(key, clock->now_ns());
  return true;
}

void DiskTier::Impl::read_loop() {
  std::unique_lock guard(mutex);
  while (true) {
    to_read.wait(guard, [&] { return stop || !readings.empty(); });
    if (stop) return;
    const Reading reading = std::move(readings.front());
    readings.pop_front();
    guard.unlock();
    const bool good = read_path(reading);
    guard.lock();
    if (given_up == reading.load.get()) given_up = nullptr;
    if (good) {
      ++stats.loads;
      stats.loaded_bytes += options.anchor_bytes + static_cast<int64_t>(reading.pages.size()) * options.page_bytes;
    }
    --stats.reading;
    reading.load->good = good;
    reading.load->done.store(true, std::memory_order_release);
    guard.unlock();
    reading.ring();
    guard.lock();
  }
}

DiskTier::DiskTier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<DiskTier>> DiskTier::open(const DiskTierOptions& options) {
  WP_ASSERT(options.page_bytes >= 0 && options.anchor_bytes >= 0);
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  if (options.limit_bytes > 0)
    impl->options.segment_bytes = std::min(options.segment_bytes, std::max(kSegmentBytesMin, options.limit_bytes / 8));
  impl->files = options.files ? options.files : &impl->system_files;
  impl->clock = options.clock ? options.clock : &system_clock();
  WP_TRY(impl->open_folder());
  impl->writer = std::thread([raw = impl.get()] { raw->write_loop(); });
  impl->reader = std::thread([raw = impl.get()] { raw->read_loop(); });
  return std::unique_ptr<DiskTier>(new DiskTier(std::move(impl)));
}

DiskTier::~DiskTier() {
  {
    const std::lock_guard guard(impl_->mutex);
    impl_->stop = true;
  }
  impl_->to_write.notify_all();
  impl_->to_read.notify_all();
  impl_->writer.join();
  impl_->reader.join();
}

uint64_t DiskTier::root() const { return impl_->root; }

bool DiskTier::has(PartKind kind, uint64_t key) const {
  const std::lock_guard guard(impl_->mutex);
  return impl_->index->has(kind, key);
}

void DiskTier::put(PartKind kind, uint64_t domain, uint64_t parent, int64_t end, std::span<const TokenId> page_tokens,
                   CaptureClass capture_class, std::vector<std::byte> bytes) {
  WP_ASSERT(static_cast<int64_t>(bytes.size()) == impl_->bytes_of(kind));
  Pending record{describe_part(kind, impl_->options.origin, domain, parent, end, page_tokens, capture_class,
                               static_cast<int64_t>(bytes.size())),
                 std::move(bytes)};
  const auto size_bytes = static_cast<int64_t>(sizeof record.header + record.bytes.size());
  {
    const std::lock_guard guard(impl_->mutex);
    if (impl_->index->has(kind, record.header.key)) return;
    if (impl_->stats.pending_bytes + size_bytes > impl_->options.pending_bytes_max) {
      ++impl_->stats.dropped;
      return;
    }
    if (!impl_->know(record.header, {})) return;  // Another path has its key.
    impl_->stats.pending_bytes += size_bytes;
    impl_->stats.anchors_pending += kind == PartKind::anchor;
    impl_->pending.push_back(std::move(record));
  }
  impl_->to_write.notify_one();
}

std::shared_ptr<DiskLoad> DiskTier::load(std::span<const TokenId> tokens, uint64_t domain, int64_t above, int64_t below,
                                         std::function<void()> ring) {
  WP_ASSERT(above >= 0 && above % kPageTokens == 0 && below <= static_cast<int64_t>(tokens.size()));
  Reading reading{.load = std::make_shared<DiskLoad>(), .domain = domain, .ring = std::move(ring)};
  DiskLoad& load = *reading.load;
  load.begin = load.end = above;
  std::vector<Found> pages;
  {
    const std::lock_guard guard(impl_->mutex);
    if (impl_->given_up) return nullptr;
    uint64_t key = impl_->root;
    for (int64_t end = kPageTokens; end < below; end += kPageTokens) {
      key = node_key(key, domain, tokens.subspan(static_cast<size_t>(end - kPageTokens), kPageTokens));
      if (end <= above) continue;
      const auto found = [&](PartKind kind) -> std::optional<Found> {
        const auto kept = impl_->index->find(kind, key);
        if (!kept || kept->place.where == 0 || kept->end != end) return std::nullopt;
        return Found{impl_->segments.at(kept->place.where), kept->place};
      };
      const auto page = found(PartKind::page);
      if (!page) break;
      pages.push_back(*page);
      const auto anchor = found(PartKind::anchor);
      if (!anchor) continue;
      load.end = end;
      reading.anchor = *anchor;
    }
    if (load.end == above) return nullptr;
    pages.resize(static_cast<size_t>((load.end - above) / kPageTokens));
    reading.pages = std::move(pages);
    reading.tokens.assign(tokens.begin(), tokens.begin() + load.end);
    load.pages.resize(reading.pages.size());
    impl_->readings.push_back(reading);
    ++impl_->stats.reading;
  }
  impl_->to_read.notify_one();
  return reading.load;
}

void DiskTier::give_up(const DiskLoad& load) {
  const std::lock_guard guard(impl_->mutex);
  if (!load.done.load(std::memory_order_acquire)) impl_->given_up = &load;
  ++impl_->stats.read_errors;
}

void DiskTier::use(std::span<const TokenId> covered, uint64_t domain) {
  uint64_t key = impl_->root;
  for (size_t begin = 0; begin < covered.size(); begin += kPageTokens)
    key = node_key(key, domain, covered.subspan(begin, kPageTokens));
  const std::lock_guard guard(impl_->mutex);
  impl_->index->use(key, impl_->clock->now_ns());
}

void DiskTier::flush() {
  std::unique_lock guard(impl_->mutex);
  impl_->written.wait(guard, [&] { return impl_->pending.empty() && !impl_->writing; });
}

DiskTierStats DiskTier::stats() const {
  const std::lock_guard guard(impl_->mutex);
  DiskTierStats stats = impl_->stats;
  stats.records = impl_->index->parts();
  stats.anchors = impl_->index->anchors();
  stats.segments = static_cast<int64_t>(impl_->segments.size());
  return stats;
}

}  // namespace wp
