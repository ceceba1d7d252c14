// EASY backfill on a flat pool, the rules of simulator/flat/kernel.py and simulator/flat/schedulers/easy.py (--estimate limit --pass event),
// as a C++ peer for bench_simulator.py. Reads int64 from standard input: jobs, capacity, then submit, size, run and
// limit of each job in columns. Writes the starts as int64 to standard output and the kernel's seconds to standard error.
#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <vector>

using i64 = std::int64_t;

struct Running { i64 end, job, size, expected; };
struct Release { i64 time, size; };
struct Pending { i64 job, size, limit; };

struct Cluster {
    const std::vector<i64> &submit, &size, &run, &limit;
    std::vector<i64> &starts;
    i64 now = 0, free;
    std::vector<Pending> queue;  // head .. end
    std::size_t head = 0;
    std::vector<Running> running;   // falling (end, job): the next to end is last
    std::vector<Release> releases;  // falling expected end

    void start(std::size_t position) {
        const Pending job = queue[position];
        std::move_backward(queue.begin() + head, queue.begin() + position, queue.begin() + position + 1);
        ++head;
        free -= job.size;
        starts[job.job] = now;
        const Running entry{now + run[job.job], job.job, job.size, now + job.limit};
        auto later = [](const Running &a, const Running &b) { return a.end != b.end ? a.end > b.end : a.job > b.job; };
        running.insert(std::upper_bound(running.begin(), running.end(), entry, later), entry);
        auto longer = [](const Release &a, const Release &b) { return a.time > b.time; };
        const Release release{entry.expected, job.size};
        releases.insert(std::upper_bound(releases.begin(), releases.end(), release, longer), release);
    }

    void end_next() {
        const Running done = running.back();
        running.pop_back();
        auto longer = [](const Release &a, const Release &b) { return a.time > b.time; };
        auto at = std::lower_bound(releases.begin(), releases.end(), Release{done.expected, 0}, longer);
        while (at->size != done.size) ++at;
        releases.erase(at);
        free += done.size;
    }

    void pass() {
        while (head < queue.size() && queue[head].size <= free) start(head);
        if (head == queue.size()) {
            queue.clear();
            head = 0;
            return;
        }
        if (queue.size() - head < 2 || free == 0) return;
        i64 available = free - queue[head].size, shadow = now;
        for (auto r = releases.rbegin(); r != releases.rend() && (available < 0 || r->time <= shadow); ++r) {
            shadow = std::max(shadow, r->time);
            available += r->size;
        }
        for (std::size_t i = head + 1; i < queue.size() && free > 0; ++i) {
            const Pending &job = queue[i];
            if (job.size > free) continue;
            if (now + job.limit > shadow) {
                if (job.size > available) continue;
                available -= job.size;
            }
            start(i);
        }
    }
};

int main() {
    i64 shape[2];
    if (std::fread(shape, sizeof(i64), 2, stdin) != 2) return 1;
    const std::size_t jobs = shape[0];
    std::vector<i64> columns[4];
    for (auto &column : columns) {
        column.resize(jobs);
        if (std::fread(column.data(), sizeof(i64), jobs, stdin) != jobs) return 1;
    }
    std::vector<i64> starts(jobs, -1);
    const auto before = std::chrono::steady_clock::now();
    Cluster cluster{columns[0], columns[1], columns[2], columns[3], starts, 0, shape[1], {}, 0, {}, {}};
    for (std::size_t next = 0; next < jobs || !cluster.running.empty();) {
        const i64 end = cluster.running.empty() ? LLONG_MAX : cluster.running.back().end;
        if (next == jobs || end <= columns[0][next]) {
            cluster.now = end;
            cluster.end_next();
        } else {
            cluster.now = columns[0][next];
            cluster.queue.push_back({static_cast<i64>(next), columns[1][next], columns[3][next]});
            ++next;
        }
        cluster.pass();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
    std::fwrite(starts.data(), sizeof(i64), jobs, stdout);
    std::fprintf(stderr, "%.9f\n", took.count());
}
