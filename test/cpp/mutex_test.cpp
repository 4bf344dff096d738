/* dibs.hpp as its contracts have it. mutex_test URL: on the store of that URL; exit status 0 if all is right. */
#include "support.hpp"

#include <cstdlib>
#include <limits>
#include <optional>

using std::chrono::system_clock;

namespace {

/* ---------------------------------------------------------------- what the types are */

template <class M, class = void> struct is_timed_lockable : std::false_type {
};

template <class M>
struct is_timed_lockable<M, std::void_t<decltype(std::declval<M &>().lock()), decltype(std::declval<M &>().unlock()),
                                        decltype(std::declval<M &>().try_lock_for(std::chrono::duration<float>())),
                                        decltype(std::declval<M &>().try_lock_until(system_clock::time_point()))>>
    : std::is_same<decltype(std::declval<M &>().try_lock()), bool> {
};

static_assert(is_timed_lockable<dibs::mutex>::value);
static_assert(noexcept(std::declval<dibs::mutex &>().unlock()));
static_assert(!noexcept(std::declval<dibs::guard &>().release()));
static_assert(!std::is_copy_constructible_v<dibs::mutex> && !std::is_move_constructible_v<dibs::mutex>);
static_assert(!std::is_copy_constructible_v<dibs::guard> && !std::is_move_constructible_v<dibs::guard>);
static_assert(!std::is_copy_constructible_v<dibs::runtime> && !std::is_copy_assignable_v<dibs::runtime>);
static_assert(std::is_nothrow_move_constructible_v<dibs::runtime> && std::is_nothrow_move_assignable_v<dibs::runtime>);
static_assert(!std::is_constructible_v<dibs::mutex, dibs::runtime &, std::nullptr_t>);
static_assert(!std::is_convertible_v<dibs::mutex &, dibs::guard>);
static_assert(std::is_error_code_enum_v<dibs::errc>);

#define COUNT_STATUS(name, text) +1
static_assert(0 DIBS_STATUS_MAP(COUNT_STATUS) == static_cast<int>(dibs::errc::cancelled) + 1, "errc has every status");

/* ----------------------------------------------------------------------------- help */

bool taken_by_others(dibs::mutex &m)
{
    bool taken = false;

    in_another_thread([&] {
        taken = !m.try_lock();
        if (!taken)
            m.unlock();
    });
    return taken;
}

/* For lose(): a store that does not tell of changes is asked at the next renewal, a third of the lease later. */
constexpr dibs_lock_options short_lease = {1500, 0, 0};

/* The calling thread's lease of the mutex ends, and the thread knows. */
void lose(dibs::runtime &rt, dibs::mutex &m)
{
    CHECK(rt.force_unlock(m.name()));
    CHECK(becomes([&] { return m.hold().lost; }));
}

/* ---------------------------------------------------------------------------- cases */

CASE(locks_for_a_scope, dibs::runtime &rt)
{
    dibs::mutex a(rt, "scope:a"), b(rt, "scope:b");

    {
        std::lock_guard lock(a);
        CHECK(taken_by_others(a));
        std::lock_guard again(a);
        CHECK(a.hold().count == 2);
    }
    CHECK(!taken_by_others(a));
    {
        std::scoped_lock both(a, b);
        CHECK(taken_by_others(a) && taken_by_others(b));
    }
    CHECK(!taken_by_others(a) && !taken_by_others(b));
    {
        std::unique_lock lock(a, 1s);
        CHECK(lock.owns_lock() && taken_by_others(a));
        lock.unlock();
        CHECK(!taken_by_others(a));
        CHECK(lock.try_lock() && taken_by_others(a));
        in_another_thread([&] {
            std::unique_lock late(a, 20ms), none(a, std::try_to_lock), past(a, system_clock::now() - 1h);
            CHECK(!late && !none && !past);
        });
    }
    CHECK(!taken_by_others(a));
}

CASE(guards, dibs::runtime &rt)
{
    dibs::mutex m(rt, "guard");
    std::uint64_t fence = 0;

    {
        dibs::guard lock(m);
        fence = lock.fence();
        lock.check();
        lock.extend(20s);
        CHECK(lock.hold().remaining_ms > 10000 && lock.hold().remaining_ms <= 20000);
        CHECK_THROWS(dibs::errc::invalid, lock.extend(48h));
        CHECK_THROWS(dibs::errc::invalid, lock.extend(-1s));
        CHECK(fence != 0 && taken_by_others(m));
    }
    CHECK(!taken_by_others(m));
    CHECK(m.try_lock_for(1s));
    dibs::guard lock(m, std::adopt_lock);
    CHECK(lock.fence() > fence);
    lock.release();
    CHECK(!taken_by_others(m));
    CHECK_THROWS(dibs::errc::not_held, lock.release());
    CHECK_THROWS(dibs::errc::not_held, lock.check());
    CHECK_THROWS(dibs::errc::not_held, lock.fence());
    CHECK_THROWS(dibs::errc::not_held, m.check());
    CHECK_THROWS(dibs::errc::not_held, m.fence());
    CHECK_THROWS(dibs::errc::not_held, m.hold());
}

CASE(tells_of_a_loss, dibs::runtime &rt)
{
    dibs::mutex m(rt, "loss", short_lease);

    dibs::guard first(m);
    lose(rt, m);
    CHECK_THROWS(dibs::errc::lost, first.check());
    CHECK_THROWS(dibs::errc::lost, first.fence());
    CHECK_THROWS(dibs::errc::lost, m.lock());
    CHECK_THROWS(dibs::errc::lost, static_cast<void>(m.try_lock()));
    thrown error = error_of([&] { first.release(); });
    CHECK(error.code == dibs::errc::lost);
    CHECK(error.what.find("\"loss\"") != std::string::npos);
    CHECK(error.what.find(dibs_status_text(DIBS_LOST)) != std::string::npos);
    CHECK_THROWS(dibs::errc::not_held, m.check());
    {
        std::unique_lock quiet(m);
        lose(rt, m);
    }
    {
        dibs::guard quiet(m);
        lose(rt, m);
    }
    CHECK(!taken_by_others(m));
}

CASE(errors, dibs::runtime &rt)
{
    const std::error_code lost = dibs::errc::lost;

    CHECK(std::string(dibs::category().name()) == "dibs");
    CHECK(lost.category() == dibs::category() && lost.value() == DIBS_LOST);
    CHECK(lost.message() == dibs_status_text(DIBS_LOST));
    CHECK(lost.default_error_condition().category() == dibs::category());
    CHECK(make_error_code(dibs::errc::busy) == std::errc::device_or_resource_busy);
    CHECK(make_error_code(dibs::errc::timeout) == std::errc::timed_out);
    CHECK(make_error_code(dibs::errc::not_held) == std::errc::operation_not_permitted);
    CHECK(make_error_code(dibs::errc::unavailable) == std::errc::host_unreachable);
    CHECK(make_error_code(dibs::errc::denied) == std::errc::permission_denied);
    CHECK(make_error_code(dibs::errc::store_error) == std::errc::io_error);
    CHECK(make_error_code(dibs::errc::invalid) == std::errc::invalid_argument);
    CHECK(make_error_code(dibs::errc::no_memory) == std::errc::not_enough_memory);
    CHECK(make_error_code(dibs::errc::closed) == std::errc::operation_canceled);
    CHECK(make_error_code(dibs::errc::overflow) == std::errc::value_too_large);
    CHECK(make_error_code(dibs::errc::cancelled) == std::errc::operation_canceled);
    CHECK(make_error_code(dibs::errc::cancelled) != dibs::errc::closed);
    CHECK(make_error_code(dibs::errc::busy) != std::errc::timed_out);
    CHECK(make_error_code(dibs::errc::timeout) != std::error_code(DIBS_TIMEOUT, std::generic_category()));
    CHECK(error_of([] { dibs::runtime(dibs::config().url("unix:///nowhere/at.all")); }).what.find("/nowhere/at.all") !=
          std::string::npos);
    CHECK_THROWS(std::errc::host_unreachable, dibs::runtime(dibs::config().url("unix:///nowhere/at.all")));

    dibs::mutex strict(rt, "strict", {0, DIBS_NO_REENTRY, 0});
    std::lock_guard lock(strict);
    CHECK_THROWS(std::errc::device_or_resource_busy, strict.lock());
    CHECK(!strict.try_lock() && !strict.try_lock_for(1h) && !strict.try_lock_until(steady_clock::now() + 1h));
    dibs::mutex wrong(rt, "wrong", {1, 0, 0});
    CHECK_THROWS(dibs::errc::invalid, wrong.lock());
    CHECK_THROWS(dibs::errc::invalid, static_cast<void>(wrong.try_lock_for(1s)));
}

CASE(names, dibs::runtime &rt)
{
    const std::string longest(DIBS_NAME_MAX, 'n');
    const char odd[] = {'\x01', ' ', '\xff', '\n'};
    dibs::mutex m(rt, std::string_view(odd, sizeof odd)), n(rt, longest);
    std::scoped_lock lock(m, n);

    CHECK(rt.query(std::string_view(odd, sizeof odd)).held && rt.query(longest).held);
    CHECK_THROWS(dibs::errc::invalid, dibs::mutex(rt, ""));
    CHECK_THROWS(dibs::errc::invalid, dibs::mutex(rt, longest + 'n'));
    CHECK_THROWS(dibs::errc::invalid, dibs::mutex(rt, std::string_view("a\0b", 3)));
    CHECK_THROWS(dibs::errc::invalid, dibs::mutex(rt, std::string_view("a\0", 2)));
    CHECK_THROWS(dibs::errc::invalid, rt.query(std::string_view("a\0b", 3)));
    CHECK_THROWS(dibs::errc::invalid, rt.force_unlock("a", std::string_view("a\0b", 3)));
    CHECK(error_of([&] { dibs::mutex(rt, std::string_view("a\0b", 3)); }).what.find("NUL") != std::string::npos);
}

/* A clock that shows these times, one after the other: it is set back while somebody waits. */
struct odd_clock {
    using rep = long;
    using period = std::milli;
    using duration = std::chrono::duration<rep, period>;
    using time_point = std::chrono::time_point<odd_clock>;
    [[maybe_unused]] static constexpr bool is_steady = false;
    static constexpr long times[] = {0, -20, -20, 100};
    static inline std::size_t asked = 0;

    static time_point now()
    {
        return time_point(duration(times[asked++]));
    }
};

CASE(waits_are_clamped, dibs::runtime &rt)
{
    using real = std::chrono::duration<double>;
    dibs::mutex m(rt, "clamp");
    std::atomic<bool> held{false}, done{false};
    const std::uint64_t before = rt.stats().timed_out;

    for (auto big : {std::chrono::hours::max(), std::chrono::hours(INT64_C(1) << 40)}) {
        CHECK(m.try_lock_for(big));
        m.unlock();
    }
    CHECK(m.try_lock_for(real(std::numeric_limits<double>::infinity())));
    CHECK(m.try_lock_for(std::chrono::nanoseconds::max()));
    CHECK(m.try_lock_for(std::chrono::hours::min()));
    CHECK(m.try_lock_until(steady_clock::time_point::max()));
    CHECK(m.try_lock_until(system_clock::time_point::min()));
    CHECK(m.hold().count == 5);
    in_another_thread([&] {
        CHECK(!m.try_lock_for(-1h) && !m.try_lock_for(std::chrono::hours::min()));
        CHECK(!m.try_lock_for(real(std::numeric_limits<double>::quiet_NaN())));
        CHECK(!m.try_lock_until(steady_clock::time_point::min()));
        CHECK(!m.try_lock_until(system_clock::time_point::min()));
        CHECK(rt.stats().timed_out == before); /* each was one try */
        CHECK(!m.try_lock_for(1ns) && !m.try_lock_for(real(0.0001)));
        CHECK(rt.stats().timed_out == before + 2); /* a wait, if a short one */
        const auto limit = steady_clock::now() + 30ms;
        CHECK(!m.try_lock_until(limit) && steady_clock::now() >= limit);
        const auto other_limit = system_clock::now() + 30ms;
        CHECK(!m.try_lock_until(other_limit) && system_clock::now() >= other_limit);
        const auto from = steady_clock::now();
        CHECK(!m.try_lock_for(0.0301s) && steady_clock::now() - from >= 30ms);
    });
    std::thread waiter([&] {
        held = true;
        CHECK(m.try_lock_for(std::chrono::hours::max()));
        done = true;
        m.unlock();
        CHECK(m.try_lock_until(steady_clock::time_point::max()));
        m.unlock();
    });
    CHECK(becomes([&] { return held.load(); }));
    std::this_thread::sleep_for(20ms);
    CHECK(!done);
    rt.unlock_all();
    waiter.join();
    CHECK(done);
}

CASE(follows_a_clock_that_is_set_back, dibs::runtime &rt)
{
    dibs::mutex m(rt, "clock");
    std::lock_guard lock(m);

    in_another_thread([&] {
        const auto from = steady_clock::now();
        CHECK(!m.try_lock_until(odd_clock::time_point(10ms)));
        CHECK(odd_clock::asked == 4 && steady_clock::now() - from >= 40ms);
    });
}

/* Each thread takes both in its own order, so that only std::lock's way out prevents a deadlock. */
CASE(two_at_once_in_many_threads, dibs::runtime &rt)
{
    dibs::mutex a(rt, "both:a"), b(rt, "both:b");
    std::vector<std::thread> threads;
    int sum = 0;

    for (int i = 0; i < 12; i++)
        threads.emplace_back([&, i] {
            for (int n = 0; n < 20; n++) {
                std::scoped_lock lock(i % 2 ? a : b, i % 2 ? b : a);
                sum++;
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    CHECK(sum == 240 && !taken_by_others(a) && !taken_by_others(b));
}

void runtimes_move()
{
    std::atomic<int> lost{0};
    auto counter = std::make_shared<std::atomic<int> *>(&lost);
    std::optional<dibs::config> how = configuration().on_event([counter](const dibs_event &event) {
        if (event.kind == DIBS_EVENT_LOST)
            (*counter)->fetch_add(1);
    });
    dibs::runtime first(*how);
    how.reset();
    CHECK(counter.use_count() == 2);

    dibs::mutex m(first, "moving", short_lease);
    std::unique_lock lock(m);
    dibs::runtime second(std::move(first));
    CHECK(first.get() == nullptr && second.get() != nullptr); /* NOLINT: what is left of it is defined */
    lose(second, m);
    CHECK(becomes([&] { return lost == 1; }));
    lock.unlock();

    first = dibs::runtime(configuration());
    first = std::move(second);
    CHECK(counter.use_count() == 2);
    m.lock();
    first.shutdown();
    CHECK_THROWS(dibs::errc::closed, dibs::mutex(first, "another").lock());
    m.check();
    first.close();
    first.close();
    CHECK(counter.use_count() == 1);
    CHECK_THROWS(dibs::errc::closed, m.lock());
    m.unlock();
    CHECK_THROWS(dibs::errc::invalid, first.unlock_all());
    CHECK(first.stats().acquired == 0);
}

void configurations()
{
    CHECK_THROWS(dibs::errc::invalid, dibs::runtime(configuration().lease(0ms)));
    CHECK_THROWS(dibs::errc::invalid, dibs::runtime(configuration().lease(-1h)));
    CHECK_THROWS(dibs::errc::invalid, dibs::runtime(configuration().lease(std::chrono::hours::max())));
    CHECK_THROWS(dibs::errc::invalid, dibs::runtime(configuration().lease(100ms).renew(51ms)));
    CHECK_THROWS(dibs::errc::invalid, dibs::runtime(configuration().spin(1h)));
    CHECK_THROWS(dibs::errc::invalid, dibs::runtime(configuration().url(url)));
    CHECK_THROWS(dibs::errc::invalid, dibs::runtime(configuration().tls_ca_file("/nowhere")));
    CHECK_THROWS(dibs::errc::invalid, dibs::runtime(configuration().sentinel_user("nobody")));
    CHECK_THROWS(dibs::errc::invalid, configuration().label(std::string_view("a\0b", 3)));
    CHECK_THROWS(dibs::errc::invalid, configuration().url(std::string_view("mem:\0b", 6)));
    CHECK_THROWS(dibs::errc::invalid, configuration().key_prefix(std::string_view("\0", 1)));

    dibs::runtime rt(configuration()
                         .lease(1999.5ms)
                         .connect_timeout(std::chrono::hours::max())
                         .command_timeout(2s)
                         .outage(1min)
                         .handoff(0ms)
                         .spin(0us)
                         .renew(500ms)
                         .replica_timeout(1s)
                         .key_prefix("hpp:")
                         .label("mutex_test"));
    dibs::mutex m(rt, "m"), other(rt, "other", {60000, DIBS_FAIR, 0});
    std::scoped_lock lock(m, other);
    CHECK(m.hold().remaining_ms <= 2000 && m.hold().remaining_ms > 500);
    CHECK(other.hold().remaining_ms > 30000);
    CHECK(std::string(rt.query("m").token).find("mutex_test") != std::string::npos);
    CHECK(m.token() == rt.query("m").token && rt.query_sharers("m").empty());
    CHECK(!rt.force_unlock("m", "somebody else") && rt.query("m").held);

    dibs_config raw{};
    raw.urls = &url;
    raw.url_count = 1;
    dibs::runtime plain(raw);
    CHECK_THROWS(dibs::errc::not_held, dibs::mutex(plain, "m").check());
    setenv("DIBS_URL", url, 1);
    dibs::runtime by_default;
    CHECK(!by_default.query("none").held);
}

/* The macro of dibs.h, whose block an exception leaves. */
CASE(guards_of_c, dibs::runtime &rt)
{
    dibs::mutex m(rt, "of c");
    const thrown error = error_of([&] {
        DIBS_GUARD(rt.get(), "of c", locked);
        CHECK(locked == DIBS_OK && taken_by_others(m));
        throw std::system_error(dibs::errc::busy);
    });

    CHECK(error.code == dibs::errc::busy && !taken_by_others(m));
}

/* While somebody else has the first of two by name, the second one stays free, in whatever order they are given. */
void several_are_locked_in_the_order_of_their_names()
{
    const std::string store = std::string_view(url) == "mem:" ? "mem:several" : url;
    dibs::runtime ours(dibs::config().url(store)), theirs(dibs::config().url(store));
    dibs::mutex a(ours, "several:a"), b(ours, "several:b");
    std::atomic<bool> done{false};

    a.lock();
    std::thread thread([&] {
        dibs::mutex first(theirs, "several:a"), second(theirs, "several:b"), again(theirs, "several:b");
        const auto all = dibs::lock(second, first, again);
        CHECK(first.hold().count == 1 && second.hold().count == 2);
        done = true;
    });
    CHECK(becomes([&] { return ours.query("several:a").waiters == 1; }));
    CHECK(b.try_lock() && !done);
    b.unlock();
    a.unlock();
    thread.join();
    CHECK(done && a.try_lock() && b.try_lock());
    ours.unlock_all();
}

/* The same with equal names in two runtimes, whatever order they are given in. */
CASE(equal_names_are_locked_in_one_order, dibs::runtime &)
{
    const bool in_memory = std::string_view(url) == "mem:";
    const auto open = [&](const std::string &prefix) {
        return dibs::runtime(dibs::config().url(in_memory ? url + prefix : url).key_prefix(prefix + ":"));
    };
    dibs::runtime x = open("x"), y = open("y");
    const bool in_order = std::less<>()(x.get(), y.get());
    dibs::runtime &low = in_order ? x : y, &high = in_order ? y : x, holder = open(in_order ? "x" : "y");
    dibs::mutex held(holder, "equal"), free(high, "equal");

    for (const bool swapped : {false, true}) {
        held.lock();
        std::thread thread([&] {
            dibs::mutex a(low, "equal"), b(high, "equal");
            const auto both = swapped ? dibs::lock(b, a) : dibs::lock(a, b);
            CHECK(a.hold().count == 1 && b.hold().count == 1);
        });
        CHECK(becomes([&] { return holder.query("equal").waiters == 1; }));
        CHECK(free.try_lock());
        free.unlock();
        held.unlock();
        thread.join();
    }
}

CASE(several_are_locked_or_none, dibs::runtime &rt)
{
    dibs::mutex a(rt, "none:a"), b(rt, "none:b", {0, DIBS_NO_REENTRY, 0});
    std::lock_guard held(b);

    CHECK_THROWS(dibs::errc::busy, static_cast<void>(dibs::lock(b, a)));
    CHECK_THROWS(dibs::errc::not_held, a.check());
    CHECK(b.hold().count == 1);
}

/* As a view that filters: walking through it changes it. */
struct names_of_a_filter {
    std::vector<std::string> names;
    std::vector<std::string>::iterator begin()
    {
        return names.begin();
    }
    std::vector<std::string>::iterator end()
    {
        return names.end();
    }
};

CASE(a_range_that_changes_as_it_is_walked_through_is_locked, dibs::runtime &rt)
{
    names_of_a_filter filter{{"filter:a", "filter:b"}};
    dibs::mutex a(rt, "filter:a");
    const dibs::lock_all both(rt, filter);

    CHECK(a.hold().count == 1);
}

CASE(a_range_is_locked_at_once, dibs::runtime &rt)
{
    const std::vector<std::string> names = {"range:b", "range:a", "range:b"};
    dibs::mutex a(rt, "range:a"), b(rt, "range:b");

    {
        dibs::lock_all both(rt, names);
        CHECK(a.hold().count == 1 && b.hold().count == 1);
        both.release();
        CHECK_THROWS(dibs::errc::not_held, a.check());
        both.release(); /* holds nothing any more */
    }
    {
        const dibs::lock_all both(rt, names);
        in_another_thread([&] { CHECK(!a.try_lock() && !b.try_lock()); });
    }
    CHECK_THROWS(dibs::errc::not_held, a.check());
    CHECK_THROWS(dibs::errc::not_held, b.check());
    std::lock_guard held(b);
    CHECK_THROWS(dibs::errc::busy, dibs::lock_all(rt, names, {0, DIBS_NO_REENTRY, 0}));
    CHECK_THROWS(dibs::errc::not_held, a.check());
    CHECK_THROWS(dibs::errc::invalid, dibs::lock_all(rt, std::array<const char *, 1>{""}));
    dibs::lock_all again(rt, std::array<std::string_view, 2>{"range:a", "range:b"});
    CHECK(b.hold().count == 2);
    CHECK(rt.force_unlock("range:a"));
    CHECK_THROWS(dibs::errc::lost, again.release());
    CHECK_THROWS(dibs::errc::not_held, again.check());
    CHECK(b.hold().count == 1);
}

CASE(a_range_is_not_waited_for_without_end, dibs::runtime &rt)
{
    const std::vector<std::string> names = {"tried:a", "tried:b"};
    dibs::mutex a(rt, "tried:a"), b(rt, "tried:b");

    {
        const dibs::lock_all both(rt, names, std::try_to_lock);
        CHECK(both && both.owns_lock() && a.hold().count == 1);
        both.check();
        in_another_thread([&] {
            dibs::lock_all tried(rt, names, std::try_to_lock);
            const dibs::lock_all waited(rt, names, 20ms, {});
            CHECK(!tried && !waited.owns_lock());
            CHECK_THROWS(dibs::errc::not_held, tried.check());
            tried.release(); /* does nothing */
        });
    }
    in_another_thread([&] {
        const dibs::lock_all both(rt, names, 10s);
        CHECK(both.owns_lock());
    });
    std::lock_guard held(b);
    CHECK(!dibs::lock_all(rt, names, 10s, {0, DIBS_NO_REENTRY, 0}));
    CHECK(!dibs::lock_all(rt, names, std::try_to_lock, {0, DIBS_NO_REENTRY, 0}));
    CHECK_THROWS(dibs::errc::invalid, dibs::lock_all(rt, names, std::try_to_lock, {0, 1u << 31, 0}));
    const dibs::lock_all with_defaults(rt, names, {});
    CHECK(with_defaults.owns_lock());
}

} // namespace

int main(int argc, char **argv)
{
    begin_test(argc, argv);
    {
        dibs::runtime rt(configuration());
        run_cases(rt);
    }
    several_are_locked_in_the_order_of_their_names();
    runtimes_move();
    configurations();
    return failures ? 1 : 0;
}
