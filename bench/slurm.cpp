// The `slurm` scheduler as far as bench_slurm.py exercises it, as a C++ peer of simulator/slurm/compiled/kernel.py: one partition
// in service all the time, placement with packing, main and backfill loops, age and fair share (users below one root).
// No limits, arrays, dependencies, outages or preemption. The rules are those of docs/schedulers/slurm.md. A backfill pass
// plans every job before the last that could start, attempt by attempt, and looks ahead group by group with a memory of
// the results: what the kernel passes over because no start depends on it, this program does.
//
// Reads from standard input int64: the fields of `Size`, then of `Knobs`, then the columns of `main`, and doubles where
// it says so. Writes start, first node and by-backfill of each job as int64 to standard output, its processor
// time in seconds to standard error.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <vector>

using i64 = std::int64_t;
using u64 = std::uint64_t;

constexpr i64 NEVER = LLONG_MAX, NONE = -1;

struct Size { i64 jobs, nodes, shapes, associations; };
struct Knobs {
    i64 calc_period, depth, sched_interval, sched_delay, bf_interval, bf_window, bf_resolution, bf_max_test, end_grace,
        origin;
};
struct Share { i64 cpus, memory, gpus; };
struct Node { i64 cpus, memory, gpus, weight; };
struct Job { i64 submit, run, limit, nodes, shape, association, charge; };
struct Queued { i64 job, key, submit, accrue; };
struct Running { i64 job, start; };
struct Entry { i64 second, job, slot; };
struct Run { i64 first, last, nodes, weight; };
struct Memory { i64 stamp, shape, wanted, begin; };
constexpr int MEMORY_BITS = 10;
using Words = std::vector<u64>;

static i64 count(const u64 *set, i64 words) {
    i64 total = 0;
    for (i64 w = 0; w < words; ++w) total += __builtin_popcountll(set[w]);
    return total;
}

template <typename Visit> static void each(const u64 *set, i64 words, Visit visit) {
    for (i64 w = 0; w < words; ++w)
        for (u64 bits = set[w]; bits; bits &= bits - 1) visit((w << 6) + __builtin_ctzll(bits));
}

struct Cluster {
    const Size size;
    const Knobs knobs;
    const double weight_age, weight_fairshare, max_age, decay;
    std::vector<Node> node;
    const std::vector<Share> share;
    const std::vector<Job> jobs;
    const std::vector<double> fixed;  // priority but for age and fair share
    const std::vector<i64> shares;
    std::vector<i64> &start_s, &first_node, &by_backfill;

    i64 words = (size.nodes + 63) / 64, now = -1, next = 0;
    i64 request = NEVER, last_requested = -(1LL << 60), last_backfill = -(1LL << 60), last_full = -(1LL << 60);
    i64 next_tick = 0, last_usage = 0;
    bool settled = false, happened = false, ended = false;
    std::vector<Queued> queue;
    std::vector<Running> running;
    std::vector<u64> held;
    std::vector<i64> spare;  // slots of `running` that are free
    std::vector<Entry> releases, planned;  // falling, rising
    std::vector<double> usage = std::vector<double>(size.associations), factor = usage, level = usage;
    std::vector<i64> fresh = std::vector<i64>(size.associations), order = fresh;
    std::vector<Node> ahead;
    Words fits = Words(size.shapes * words), service = Words(words), chosen = service, usable = service, holding = service;
    std::vector<Run> runs = std::vector<Run>(size.nodes + 1);
    i64 slots = 0, cuts = 0, most_slots = std::max<i64>(2, knobs.bf_max_test) + 3;
    std::vector<i64> slot_begin = std::vector<i64>(most_slots + 1);  // slot j ends where j + 1 begins
    Words slot_nodes = Words(most_slots * words);                    // of word w: most_slots in a row
    Words idle = fits;
    std::vector<Memory> memory = std::vector<Memory>(1 << MEMORY_BITS);
    Words memory_nodes = Words(2 * words << MEMORY_BITS);
    i64 stamp = 0;
    std::vector<i64> ready_stamp = std::vector<i64>(size.shapes);
    std::vector<int> ready = std::vector<int>(size.shapes * size.nodes);
    std::vector<char> known = std::vector<char>(size.shapes);

    void prepare() {
        for (i64 n = 0; n < size.nodes; ++n) {
            service[n >> 6] |= 1ULL << (n & 63);
            for (i64 s = 0; s < size.shapes; ++s)
                if (holds(node, n, s)) fits[s * words + (n >> 6)] |= 1ULL << (n & 63);
        }
        rank_users();
    }

    bool holds(const std::vector<Node> &on, i64 n, i64 shape) const {
        const Share &need = share[shape];
        return on[n].gpus >= need.gpus && on[n].cpus >= need.cpus && on[n].memory >= need.memory;
    }

    void add(std::vector<Node> &on, i64 n, i64 shape, i64 sign) const {
        on[n].cpus += sign * share[shape].cpus;
        on[n].memory += sign * share[shape].memory;
        on[n].gpus += sign * share[shape].gpus;
    }

    // -- the clock

    static i64 at_or_after(i64 second, i64 origin, i64 period) {
        const i64 behind = (second - origin) % period;
        return behind == 0 ? second : second - behind + (behind > 0 ? period : 0);
    }

    i64 next_instant() {
        i64 instant = releases.empty() ? NEVER : releases.back().second;
        if (next < size.jobs) instant = std::min(instant, jobs[next].submit);
        if (instant == NEVER && (queue.empty() || settled)) return NEVER;
        instant = std::max(instant, now);
        if (!queue.empty()) {
            const i64 from = std::max<i64>(now, 0);
            instant = std::min(instant, std::max(from, request));
            const i64 full_from = last_full == from ? from + 1 : from;
            instant = std::min(instant, at_or_after(full_from, knobs.origin, knobs.sched_interval));
            instant = std::min(instant, std::max(from, last_backfill + knobs.bf_interval));
        }
        if (!queue.empty() || weight_fairshare != 0.0) {
            if (next_tick < now) next_tick = at_or_after(now, knobs.origin, knobs.calc_period);
            instant = std::min(instant, next_tick);
        }
        return instant;
    }

    void advance() {
        for (i64 instant; (instant = next_instant()) != NEVER;) {
            now = instant;
            for (; !releases.empty() && releases.back().second <= now; happened = ended = true) end_next();
            for (; next < size.jobs && jobs[next].submit <= now; ++next) enqueue(next);
            calculate_priorities();
            passes();
        }
    }

    void calculate_priorities() {
        if (next_tick < now) next_tick = at_or_after(now, knobs.origin, knobs.calc_period);
        if (next_tick != now) return;
        if (weight_fairshare != 0.0) {
            account_usage();
            rank_users();
        }
        if (!queue.empty()) {
            reprioritise();
            settled = false;
        }
        next_tick = now + knobs.calc_period;
    }

    void passes() {
        if (happened) settled = false;
        const bool full = last_full != now && at_or_after(now, knobs.origin, knobs.sched_interval) == now;
        if (!queue.empty()) {
            if (full || request <= now) {
                last_requested = now;
                request = NEVER;
                if (full) last_full = now;
                main_pass(full);
                if (full && releases.empty()) settled = true;
            } else if (ended) {
                main_pass(false);
            }
        }
        if (now >= last_backfill + knobs.bf_interval && (!queue.empty() || happened)) {
            if (!queue.empty()) backfill_pass();
            last_backfill = now;
        }
        happened = ended = false;
    }

    // -- priority

    i64 priority(i64 job, i64 age) const {
        double value = fixed[job] + weight_age * std::min(1.0, age / max_age);
        if (weight_fairshare != 0.0) value += weight_fairshare * factor[jobs[job].association];
        return static_cast<i64>(std::min(std::max(value, 1.0), 4294967295.0));
    }

    void account_usage() {
        for (const Entry &entry : planned)
            fresh[jobs[entry.job].association] +=
                jobs[entry.job].charge * (now - std::max(running[entry.slot].start, last_usage));
        for (i64 a = size.associations - 1; a > 0; --a) fresh[0] += fresh[a];
        for (i64 a = 0; a < size.associations; ++a) {
            usage[a] = usage[a] * decay + fresh[a];
            fresh[a] = 0;
        }
        last_usage = now;
    }

    void rank_users() {
        i64 all = 0;
        double used = 0.0;
        for (i64 a = 1; a < size.associations; ++a) {
            all += shares[a];
            used += usage[a];
        }
        const i64 users = size.associations - 1;
        for (i64 a = 1; a <= users; ++a) {
            level[a] = usage[a] == 0.0 ? std::numeric_limits<double>::infinity()
                       : shares[a] == 0 ? 0.0
                                        : (static_cast<double>(shares[a]) / all) / (usage[a] / used);
            i64 k = a - 1;
            for (; k > 0 && level[a] > level[order[k - 1]]; --k) order[k] = order[k - 1];
            order[k] = a;
        }
        i64 rank = users;
        for (i64 i = 0; i < users; ++i) {
            if (i == 0 || level[order[i]] != level[order[i - 1]]) rank = users - i;
            factor[order[i]] = static_cast<double>(rank) / users;
        }
    }

    // -- queue

    static bool before(const Queued &a, const Queued &b) {
        if (a.key != b.key) return a.key > b.key;
        return a.submit != b.submit ? a.submit < b.submit : a.job < b.job;
    }

    void enqueue(i64 job) {
        const Queued entry{job, priority(job, 0), jobs[job].submit, now};
        queue.push_back(entry);
        std::size_t i = queue.size() - 1;
        for (; i > 0 && before(entry, queue[i - 1]); --i) queue[i] = queue[i - 1];
        queue[i] = entry;
        happened = true;
        if (request == NEVER) request = std::max(now, last_requested + knobs.sched_delay);
    }

    void reprioritise() {
        for (std::size_t row = 0; row < queue.size(); ++row) {
            Queued entry = queue[row];
            entry.key = priority(entry.job, now - entry.accrue);
            std::size_t i = row;
            for (; i > 0 && before(entry, queue[i - 1]); --i) queue[i] = queue[i - 1];
            queue[i] = entry;
        }
    }

    void compact_queue() {
        queue.erase(std::remove_if(queue.begin(), queue.end(), [](const Queued &entry) { return entry.job == NONE; }),
                    queue.end());
    }

    // -- starts and ends

    void start(i64 job, bool backfilled) {
        i64 s;
        if (spare.empty()) {
            s = static_cast<i64>(running.size());
            running.push_back({});
            held.resize(held.size() + words);
        } else {
            s = spare.back();
            spare.pop_back();
        }
        running[s] = {job, now};
        std::copy(chosen.begin(), chosen.end(), held.begin() + s * words);
        first_node[job] = NONE;
        each(chosen.data(), words, [&](i64 n) {
            if (first_node[job] == NONE) first_node[job] = n;
            add(node, n, jobs[job].shape, -1);
        });
        start_s[job] = now;
        by_backfill[job] = backfilled;
        const Job &what = jobs[job];
        insert(planned, {now + what.limit, job, s}, 1);
        insert(releases, {now + std::min(what.run, what.limit + knobs.end_grace), job, s}, -1);
    }

    static void insert(std::vector<Entry> &rows, Entry entry, i64 sign) {
        rows.push_back(entry);
        std::size_t i = rows.size() - 1;
        for (; i > 0 && (sign * rows[i - 1].second > sign * entry.second ||
                         (rows[i - 1].second == entry.second && sign * rows[i - 1].job > sign * entry.job)); --i)
            rows[i] = rows[i - 1];
        rows[i] = entry;
    }

    void end_next() {
        const Entry done = releases.back();
        releases.pop_back();
        each(&held[done.slot * words], words, [&](i64 n) { add(node, n, jobs[done.job].shape, 1); });
        const i64 since = std::max(running[done.slot].start, last_usage);
        fresh[jobs[done.job].association] += jobs[done.job].charge * (now - since);
        auto at = planned.begin();
        while (at->slot != done.slot) ++at;
        planned.erase(at);
        spare.push_back(done.slot);
    }

    // -- placement

    bool choose(const Words &available, i64 shape, i64 wanted) {
        for (i64 w = 0; w < words; ++w) {
            holding[w] = 0;
            for (u64 bits = available[w] & fits[shape * words + w]; bits; bits &= bits - 1)
                if (holds(node, (w << 6) + __builtin_ctzll(bits), shape)) holding[w] |= bits & -bits;
        }
        return pick(wanted);
    }

    // Choose among the nodes in `holding`.
    bool pick(i64 wanted) {
        if (count(holding.data(), words) < wanted) return false;
        i64 found = 0, last = -2;
        for (i64 w = 0; w < words; ++w) {
            chosen[w] = 0;
            for (u64 bits = holding[w]; bits; bits &= bits - 1) {
                const i64 n = (w << 6) + __builtin_ctzll(bits);
                if (n != last + 1 || node[n].weight != runs[found - 1].weight) runs[found++] = {n, n, 0, node[n].weight};
                runs[found - 1].last = last = n;
                ++runs[found - 1].nodes;
            }
        }
        for (i64 missing = wanted; missing > 0;) {
            Run *best = nullptr;
            for (i64 k = 0; k < found; ++k) {
                Run &run = runs[k];
                if (run.nodes == 0) continue;
                const bool enough = run.nodes >= missing;
                const bool better = !best                               ? true
                                    : run.weight != best->weight        ? run.weight < best->weight
                                    : enough != (best->nodes >= missing) ? enough
                                    : enough                            ? run.nodes < best->nodes
                                                                        : run.nodes > best->nodes;
                if (better) best = &run;
            }
            for (i64 n = best->first; n <= std::min(best->last, best->first + missing - 1); ++n)
                chosen[n >> 6] |= 1ULL << (n & 63);
            missing -= best->nodes;
            best->nodes = 0;
        }
        return true;
    }

    // -- main pass: the first job that does not fit blocks the only partition

    void main_pass(bool full) {
        i64 tested = 0;
        bool started = false;
        for (Queued &entry : queue) {
            if (!full && ++tested > knobs.depth + 1) break;
            const Job &job = jobs[entry.job];
            if (!choose(service, job.shape, job.nodes)) break;
            start(entry.job, false);
            entry.job = NONE;
            started = true;
        }
        if (started) compact_queue();
    }

    // -- backfill pass

    // The nodes that hold a share of `shape` now; looked up once between starts.
    const u64 *holding_now(i64 shape) {
        u64 *nodes = &idle[shape * words];
        if (!known[shape]) {
            known[shape] = true;
            for (i64 w = 0; w < words; ++w) {
                nodes[w] = 0;
                for (u64 bits = fits[shape * words + w]; bits; bits &= bits - 1)
                    if (holds(node, (w << 6) + __builtin_ctzll(bits), shape)) nodes[w] |= bits & -bits;
            }
        }
        return nodes;
    }

    void forget() {
        std::fill(known.begin(), known.end(), false);
        ++stamp;
    }

    // The last row in [from, to] whose job may start now: enough nodes hold its share that no slot keeps from it.
    i64 last_that_may_start(i64 from, i64 to) {
        for (; to >= from; --to) {
            const Job &job = jobs[queue[to].job];
            const u64 *nodes = holding_now(job.shape);
            if (count(nodes, words) < job.nodes) continue;
            i64 first = 0;
            find_usable(now, now + job.limit, first);
            for (i64 w = 0; w < words; ++w) usable[w] &= nodes[w];
            if (count(usable.data(), words) >= job.nodes) break;
        }
        return to;
    }

    enum Outcome { NEXT_JOB, STARTED, RESERVED, END_PASS };

    void backfill_pass() {
        forget();
        const i64 r = knobs.bf_resolution;
        slots = cuts = 1;
        slot_begin[0] = now / r * r, slot_begin[1] = (now + knobs.bf_window) / r * r;
        for (i64 w = 0; w < words; ++w) slot_nodes[w * most_slots] = service[w];
        i64 last = last_that_may_start(0, static_cast<i64>(queue.size()) - 1);
        i64 tested = 0;
        bool started = false;
        for (i64 row = 0; row <= last && tested < knobs.bf_max_test; ++row) {
            const Outcome outcome = plan(queue[row].job, tested);
            if (outcome == END_PASS) break;
            if (outcome == NEXT_JOB) continue;
            if (outcome == STARTED) {
                queue[row].job = NONE;
                started = true;
                forget();
            }
            last = last_that_may_start(row + 1, last);
        }
        if (started) compact_queue();
    }

    Outcome plan(i64 row, i64 &all_tested) {
        const Job &job = jobs[row];
        bool tested = false;
        i64 first = 0;  // the slot that `attempt` falls into
        for (i64 attempt = now; attempt <= now + knobs.bf_window;) {
            const i64 later = find_usable(attempt, attempt + job.limit, first);
            i64 begin = NONE;
            if (count(usable.data(), words) >= job.nodes) {
                all_tested += !tested;
                tested = true;
                const u64 *nodes = holding_now(job.shape);
                i64 able = 0;
                for (i64 w = 0; w < words; ++w) able += __builtin_popcountll(usable[w] & nodes[w]);
                if (able >= job.nodes) {
                    for (i64 w = 0; w < words; ++w) holding[w] = usable[w] & nodes[w];
                    pick(job.nodes);
                    begin = now;
                } else {
                    begin = remembered(job.shape, job.nodes);
                }
            }
            if (begin == NONE) {
                if (later == NONE) return NEXT_JOB;
                attempt = later;
                continue;
            }
            begin = std::max(begin, attempt);
            if (begin == now) {
                start(row, true);
                return STARTED;
            }
            if (later != NONE && begin > later) {
                attempt = later;
                continue;
            }
            if (begin > now + knobs.bf_window) return NEXT_JOB;
            const i64 r = knobs.bf_resolution, from = begin / r * r, to = (begin + job.limit) / r * r;
            if (overlaps(from, to, from < attempt ? 0 : first)) {
                attempt = begin + (begin == attempt ? r : 0);
                continue;
            }
            if (cuts >= std::max<i64>(2, knobs.bf_max_test)) return END_PASS;
            reserve(from, std::max(to, from + r));
            return RESERVED;
        }
        return NEXT_JOB;
    }

    // The nodes free in all slots that [attempt, end] touches; the end of the first slot that more of them follow.
    i64 find_usable(i64 attempt, i64 end, i64 &first) {
        while (first < slots && slot_begin[first + 1] <= attempt) ++first;
        i64 last = first;  // the first that begins behind `end`
        while (last < slots && slot_begin[last] <= end) ++last;
        i64 later = slots;
        for (i64 w = 0; w < words; ++w) {
            const u64 *nodes = &slot_nodes[w * most_slots], base = service[w];
            u64 left = base;
            i64 j = first;
            for (; j < std::min(later, std::min(last + 1, slots - 1)); ++j) {
                if (base & nodes[j + 1] & ~(left & nodes[j])) later = j;
                if (j < last) left &= nodes[j];
            }
            for (; j < last; ++j) left &= nodes[j];
            usable[w] = left;
        }
        return later < slots ? slot_begin[later + 1] : NONE;
    }

    // What `look_ahead` says, which depends on the shape, the number and the usable nodes alone until a job starts.
    i64 remembered(i64 shape, i64 wanted) {
        u64 hash = static_cast<u64>(shape * 64 + wanted);
        for (i64 w = 0; w < words; ++w) hash = (hash ^ usable[w]) * 0x9E3779B97F4A7C15ULL;
        const i64 at = static_cast<i64>(hash >> (64 - MEMORY_BITS));
        Memory &found = memory[at];
        u64 *nodes = &memory_nodes[2 * at * words];
        if (found.stamp == stamp && found.shape == shape && found.wanted == wanted &&
            std::equal(usable.begin(), usable.end(), nodes)) {
            std::copy(nodes + words, nodes + 2 * words, chosen.begin());
            return found.begin;
        }
        found = {stamp, shape, wanted, look_ahead(shape, wanted)};
        std::copy(usable.begin(), usable.end(), nodes);
        std::copy(chosen.begin(), chosen.end(), nodes + words);
        return found.begin;
    }

    // How many running jobs, by expected end, must have ended before each node holds a share of `shape`.
    void count_ends(i64 shape) {
        ready_stamp[shape] = stamp;
        ahead = node;
        int *of = &ready[shape * size.nodes];
        for (i64 n = 0; n < size.nodes; ++n) of[n] = holds(ahead, n, shape) ? 0 : INT_MAX;
        for (std::size_t i = 0; i < planned.size(); ++i)
            each(&held[planned[i].slot * words], words, [&](i64 n) {
                add(ahead, n, jobs[planned[i].job].shape, 1);
                if (of[n] == INT_MAX && holds(ahead, n, shape)) of[n] = static_cast<int>(i) + 1;
            });
    }

    i64 ready_after(i64 shape, i64 ended) {
        i64 total = 0;
        const int *of = &ready[shape * size.nodes];
        for (i64 w = 0; w < words; ++w) {
            holding[w] = 0;
            for (u64 bits = usable[w] & fits[shape * words + w]; bits; bits &= bits - 1)
                if (of[(w << 6) + __builtin_ctzll(bits)] <= ended) holding[w] |= bits & -bits, ++total;
        }
        return total;
    }

    i64 look_ahead(i64 shape, i64 wanted) {
        if (ready_stamp[shape] != stamp) count_ends(shape);
        if (ready_after(shape, static_cast<i64>(planned.size())) < wanted) return NONE;
        i64 window = 30, origin = NONE;
        for (std::size_t i = 0; i < planned.size();) {
            i64 last = NONE;
            while (i < planned.size()) {
                const Entry &entry = planned[i++];
                bool touches = false;
                for (i64 w = 0; w < words; ++w) touches = touches || (held[entry.slot * words + w] & usable[w]);
                if (!touches) continue;
                last = entry.second;
                if (origin == NONE) origin = (last / 30 + 1) * 30;
                if (i < planned.size() && planned[i].second > origin + window) break;
            }
            if (last == NONE) return NONE;
            do window *= 2;
            while (i < planned.size() && planned[i].second > origin + window);
            if (ready_after(shape, static_cast<i64>(i)) >= wanted) {
                pick(wanted);
                return last > now ? last : std::max(now + 1, last + knobs.end_grace);
            }
        }
        return NONE;
    }

    bool overlaps(i64 begin, i64 end, i64 first) const {
        while (first < slots && slot_begin[first + 1] <= begin) ++first;
        for (; first < slots && slot_begin[first] < end; ++first)
            for (i64 w = 0; w < words; ++w)
                if (chosen[w] & ~slot_nodes[w * most_slots + first]) return true;
        return false;
    }

    void cut(i64 j, i64 second) {
        std::copy_backward(&slot_begin[j + 1], &slot_begin[slots + 1], &slot_begin[slots + 2]);
        slot_begin[j + 1] = second;
        for (i64 w = 0; w < words; ++w) {
            u64 *nodes = &slot_nodes[w * most_slots];
            std::copy_backward(nodes + j, nodes + slots, nodes + slots + 1);
        }
        ++slots, ++cuts;
    }

    void join(i64 j) {
        std::copy(&slot_begin[j + 2], &slot_begin[slots + 1], &slot_begin[j + 1]);
        for (i64 w = 0; w < words; ++w) {
            u64 *nodes = &slot_nodes[w * most_slots];
            std::copy(nodes + j + 2, nodes + slots, nodes + j + 1);
        }
        --slots;
    }

    void reserve(i64 begin, i64 end) {
        i64 j = 0;
        while (j < slots && slot_begin[j + 1] < begin) ++j;
        if (j == slots) return;
        const i64 before = std::max<i64>(j - 1, 0);
        if (slot_begin[j + 1] > begin) cut(j, begin);
        for (++j; j < slots;) {
            if (end < slot_begin[j + 1]) cut(j, end);
            for (i64 w = 0; w < words; ++w) slot_nodes[w * most_slots + j] &= ~chosen[w];
            if (slot_begin[++j] == end) break;
        }
        for (i64 k = before; k < std::min(j, slots - 1); ++k) {
            bool same = true;
            for (i64 w = 0; w < words; ++w) same = same && slot_nodes[w * most_slots + k] == slot_nodes[w * most_slots + k + 1];
            if (same) return join(k);
        }
    }
};

template <typename T> static std::vector<T> read(std::size_t count) {
    std::vector<T> values(count);
    if (std::fread(values.data(), sizeof(T), count, stdin) != count) std::exit(1);
    return values;
}

int main() {
    const Size size = read<Size>(1)[0];
    const Knobs knobs = read<Knobs>(1)[0];
    const auto weights = read<double>(4);  // age, fair share, longest age in s, decay a period
    auto node = read<Node>(size.nodes);
    auto share = read<Share>(size.shapes);
    auto jobs = read<Job>(size.jobs);
    auto fixed = read<double>(size.jobs);
    auto shares = read<i64>(size.associations);
    std::vector<i64> start_s(size.jobs, NONE), first_node(size.jobs, NONE), by_backfill(size.jobs, 0);
    Cluster cluster{size, knobs, weights[0], weights[1], weights[2], weights[3], std::move(node), std::move(share),
                    std::move(jobs), std::move(fixed), std::move(shares), start_s, first_node, by_backfill};
    cluster.prepare();
    const std::clock_t before = std::clock();
    cluster.advance();
    const double took = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    for (const auto *column : {&start_s, &first_node, &by_backfill}) std::fwrite(column->data(), sizeof(i64), size.jobs, stdout);
    std::fprintf(stderr, "%.9f\n", took);
}
