/*
 * dibs_task.hpp as its contracts have it; in C++20 also its coroutines. task_test URL: on the store of that URL; exit
 * status 0 if all is right.
 */
#include "support.hpp"

#include <poll.h>
#include <pthread.h>

#include <ctime>
#include <optional>
#include <vector>

namespace {

static_assert(!std::is_copy_constructible_v<dibs::task> && !std::is_copy_assignable_v<dibs::task>);
static_assert(std::is_nothrow_move_constructible_v<dibs::task> && std::is_nothrow_move_assignable_v<dibs::task>);
static_assert(!std::is_copy_constructible_v<dibs::task_guard> && !std::is_copy_assignable_v<dibs::task_guard>);
static_assert(std::is_nothrow_move_constructible_v<dibs::task_guard>);
static_assert(std::is_nothrow_move_assignable_v<dibs::task_guard>);
static_assert(std::is_nothrow_default_constructible_v<dibs::task_guard>);
static_assert(!std::is_convertible_v<dibs::task_guard, bool>);
static_assert(!std::is_copy_constructible_v<dibs::queue> && !std::is_move_constructible_v<dibs::queue>);
static_assert(!std::is_copy_constructible_v<dibs::task_scope> && !std::is_move_constructible_v<dibs::task_scope>);
static_assert(noexcept(std::declval<dibs::task &>().cancel()) &&noexcept(std::declval<dibs::task_guard &>().unlock()));

/* ----------------------------------------------------------------------------- help */

constexpr dibs_lock_options short_lease = {1500, 0, 0};

/* What a function for begin_lock() was told. */
struct told {
    std::atomic<int> times{0};
    std::atomic<dibs_status> status{DIBS_OK};
    std::string detail;
    const dibs_task *task = nullptr;
    dibs::task_guard lock;

    auto function()
    {
        return [this](const dibs_completion &done, dibs::task_guard granted) {
            status = done.status;
            detail = done.detail;
            task = done.task;
            lock = std::move(granted);
            times++;
        };
    }
};

bool taken(dibs::runtime &rt, const char *name)
{
    return rt.query(name).held;
}

template <class Condition> bool dispatches_until(dibs::queue &queue, Condition condition)
{
    return becomes([&] {
        queue.dispatch(1ms);
        return condition();
    });
}

bool lock_now(dibs::queue &queue, dibs::task &task, const char *name, told &to, const dibs_lock_options &how = {})
{
    const int before = to.times;

    task.begin_lock(queue, name, to.function(), dibs::forever, how);
    return dispatches_until(queue, [&] { return to.times > before; }) && to.status == DIBS_OK;
}

/* ---------------------------------------------------------------------------- cases */

CASE(a_scope_acts_for_its_task, dibs::runtime &rt)
{
    dibs::mutex m(rt, "scope");
    dibs::task one(rt), two(rt);

    m.lock();
    m.unlock();
    {
        dibs::task_scope inside(one);
        m.lock();
        m.lock();
        CHECK(m.hold().count == 2);
        dibs::task_scope further(two);
        CHECK(!m.try_lock());
        CHECK_THROWS(dibs::errc::not_held, m.check());
        CHECK_THROWS(dibs::errc::busy, dibs::task_scope again(one));
    }
    CHECK_THROWS(dibs::errc::not_held, m.check());
    CHECK(!m.try_lock());
    in_another_thread([&] {
        dibs::task_scope inside(one);
        CHECK(m.hold().count == 2);
        m.unlock();
        m.unlock();
    });
    CHECK(m.try_lock());
    m.unlock();
}

CASE(a_scope_outlives_its_task, dibs::runtime &rt)
{
    dibs::mutex m(rt, "scope's task ends");
    auto task = std::make_optional<dibs::task>(rt);
    dibs::task_scope inside(*task);

    m.lock();
    task.reset();
    CHECK_THROWS(dibs::errc::not_held, m.check());
    CHECK(m.try_lock_for(10s));
    m.unlock();
}

CASE(a_begun_lock_is_granted, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task task(rt), other(rt);
    told one, two;

    CHECK(queue.dispatch() == 0);
    task.begin_lock(queue, "begun", one.function());
    CHECK(queue.dispatch(10s) == 1);
    CHECK(one.times == 1 && one.status == DIBS_OK && one.detail.empty() && one.lock);
    CHECK(one.lock.fence() != 0 && taken(rt, "begun"));
    one.lock.check();

    other.begin_lock(queue, "begun", two.function());
    CHECK(queue.dispatch(20ms) == 0 && two.times == 0);
    dibs::task_guard moved = std::move(one.lock);
    CHECK(moved && !one.lock && one.lock.fence() == 0); /* NOLINT: what is left of it is defined */
    const std::uint64_t fence = moved.fence();
    moved = dibs::task_guard();
    CHECK(dispatches_until(queue, [&] { return two.times == 1; }));
    CHECK(two.status == DIBS_OK && two.lock.fence() > fence);
    two.lock.unlock();
    two.lock.unlock();
    CHECK(!two.lock);
    CHECK(becomes([&] { return !taken(rt, "begun"); }));
}

/* The function does not keep what it got. */
CASE(a_lock_that_nobody_keeps_is_given_up, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task task(rt);
    bool done = false;

    task.begin_lock(queue, "unwanted",
                    [&, only_moved = std::make_unique<int>(1)](const dibs_completion &, dibs::task_guard) {
                        done = *only_moved == 1;
                    });
    CHECK(queue.dispatch(10s) >= 1 && done);
    CHECK(becomes([&] { return !taken(rt, "unwanted"); }));
}

CASE(a_begun_lock_fails, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task holder(rt), task(rt);
    told held, to;

    CHECK(lock_now(queue, holder, "fails", held));
    task.begin_lock(queue, "fails", to.function(), 0ms);
    CHECK(dispatches_until(queue, [&] { return to.times == 1; }) && to.status == DIBS_BUSY && !to.lock);
    task.begin_lock(queue, "fails", to.function(), 20ms);
    CHECK(dispatches_until(queue, [&] { return to.times == 2; }) && to.status == DIBS_TIMEOUT);
    CHECK(to.detail.find("fails") != std::string::npos);
    CHECK_THROWS(dibs::errc::invalid, task.begin_lock(queue, "fails", to.function(), 1s, {1, 0, 0}));
    CHECK_THROWS(dibs::errc::invalid, task.begin_lock(queue, "", to.function()));
    CHECK_THROWS(dibs::errc::invalid, task.begin_lock(queue, std::string_view("a\0b", 3), to.function()));
    {
        dibs::task_scope inside(task);
        CHECK_THROWS(dibs::errc::busy, task.begin_lock(queue, "another", to.function()));
    }
    CHECK(lock_now(queue, task, "another", to) && to.times == 3);
}

CASE(the_queue_tells_poll, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task holder(rt), task(rt);
    told held, to;
    pollfd one = {queue.fd(), POLLIN, 0};

    CHECK(one.fd >= 0 && poll(&one, 1, 0) == 0);
    CHECK(lock_now(queue, holder, "poll", held));
    task.begin_lock(queue, "poll", to.function());
    CHECK(poll(&one, 1, 20) == 0);
    held.lock.unlock();
    CHECK(poll(&one, 1, 10000) == 1);
    CHECK(dispatches_until(queue, [&] { return to.times == 1; }));
    CHECK(dispatches_until(queue, [&] { return poll(&one, 1, 0) == 0; }));
}

CASE(cancels, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task holder(rt), task(rt);
    told held, kept, to;
    bool released = false;

    CHECK(lock_now(queue, holder, "cancel", held) && lock_now(queue, task, "kept", kept));
    task.begin_lock(queue, "cancel", to.function());
    CHECK(queue.dispatch(20ms) == 0);
    in_another_thread([&] { task.cancel(); });
    CHECK(dispatches_until(queue, [&] { return to.times == 1; }) && to.status == DIBS_CANCELLED && !to.lock);
    CHECK(!to.detail.empty());
    task.begin_lock(queue, "free", to.function(), 0ms);
    CHECK(dispatches_until(queue, [&] { return to.times == 2; }) && to.status == DIBS_CANCELLED);
    kept.lock.check();
    kept.lock.begin_release([&](const dibs_completion &done) { released = done.status == DIBS_OK; });
    CHECK(dispatches_until(queue, [&] { return released; }) && !taken(rt, "kept"));
    {
        dibs::task_scope inside(task);
        CHECK_THROWS(dibs::errc::cancelled, dibs::mutex(rt, "free").lock());
    }
    held.lock.unlock();
    CHECK(becomes([&] { return !taken(rt, "cancel"); }));
}

/* What is begun while something is under way waits in the task. */
CASE(one_thing_after_the_other, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task task(rt);
    told a, b, c;

    task.begin_lock(queue, "order:a", a.function());
    task.begin_lock(queue, "order:b", b.function());
    CHECK(dispatches_until(queue, [&] { return a.times + b.times == 2; }) && a.lock && b.lock);
    a.lock.unlock();
    b.lock.unlock();
    task.begin_lock(queue, "order:a", c.function());
    CHECK(dispatches_until(queue, [&] { return c.times == 1; }) && c.lock);
    CHECK(!taken(rt, "order:b"));
    c.lock.check();
}

CASE(an_unlock_waits_for_the_thread_inside, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task task(rt);
    told to;

    CHECK(lock_now(queue, task, "inside", to));
    {
        dibs::task_scope inside(task);
        CHECK_THROWS(dibs::errc::busy, to.lock.begin_release([](const dibs_completion &) {}));
        CHECK(to.lock);
        CHECK_THROWS(dibs::errc::busy, to.lock.check());
        to.lock.unlock();
        CHECK(taken(rt, "inside") && !to.lock);
    }
    CHECK(becomes([&] { return !taken(rt, "inside"); }));
}

CASE(releases, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task task(rt);
    told to;
    std::optional<dibs_status> end;
    const auto ends = [&](const dibs_completion &done) { end = done.status; };

    CHECK(lock_now(queue, task, "release", to));
    to.lock.begin_release(ends);
    CHECK(!to.lock && dispatches_until(queue, [&] { return end.has_value(); }) && end == DIBS_OK);
    CHECK(!taken(rt, "release"));
    CHECK_THROWS(dibs::errc::not_held, to.lock.begin_release(ends));
    CHECK_THROWS(dibs::errc::not_held, to.lock.check());
    CHECK_THROWS(dibs::errc::not_held, to.lock.on_lost(ends));
}

CASE(tells_of_a_loss, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task task(rt);
    told to;
    int lost = 0;
    std::optional<dibs_status> end;

    CHECK(lock_now(queue, task, "loss", to, short_lease));
    to.lock.on_lost([&](const dibs_completion &done) {
        CHECK(done.kind == DIBS_DONE_LOST && done.status == DIBS_LOST && std::string(done.name) == "loss");
        lost++;
    });
    CHECK(queue.dispatch(20ms) == 0 && lost == 0);
    CHECK(rt.force_unlock("loss"));
    CHECK(dispatches_until(queue, [&] { return lost == 1; }));
    CHECK_THROWS(dibs::errc::lost, to.lock.check());
    to.lock.on_lost([&](const dibs_completion &done) {
        lost += std::string(done.name) == "loss" && done.task == task.get() ? 10 : 0;
    });
    CHECK(lost == 11);
    to.lock.begin_release([&](const dibs_completion &done) { end = done.status; });
    CHECK(dispatches_until(queue, [&] { return end.has_value(); }) && end == DIBS_LOST && lost == 11);
    CHECK(lock_now(queue, task, "loss", to));
}

CASE(a_task_ends, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task holder(rt);
    auto task = std::make_optional<dibs::task>(rt);
    told held, kept, first, second;

    CHECK(lock_now(queue, holder, "task ends", held) && lock_now(queue, *task, "kept", kept));
    task->begin_lock(queue, "task ends", first.function());
    task->begin_lock(queue, "second", second.function());
    CHECK(queue.dispatch(20ms) == 0);
    task.reset();
    CHECK(dispatches_until(queue, [&] { return first.times + second.times == 2; }));
    CHECK(first.status == DIBS_CANCELLED && second.status == DIBS_CANCELLED && !second.detail.empty());
    CHECK(becomes([&] { return !taken(rt, "kept"); }));
    CHECK_THROWS(dibs::errc::not_held, kept.lock.check());
    CHECK_THROWS(dibs::errc::not_held, kept.lock.begin_release([](const dibs_completion &) {}));
    const char *const why = "the task has ended"; /* not what the thread's last failure was */
    CHECK(error_of([&] { kept.lock.check(); }).what.find(why) != std::string::npos);
    CHECK(error_of([&] { kept.lock.begin_release([](const dibs_completion &) {}); }).what.find(why) !=
          std::string::npos);
    kept.lock.unlock();
    held.lock.unlock();
    CHECK(becomes([&] { return !taken(rt, "task ends"); }));
}

/* Its lock was granted, but nobody had dispatched that: the end of the task gave the lock up. */
CASE(a_task_ends_before_its_grant_is_dispatched, dibs::runtime &rt)
{
    dibs::queue queue;
    auto task = std::make_optional<dibs::task>(rt);
    pollfd one = {queue.fd(), POLLIN, 0};
    told to;

    task->begin_lock(queue, "too late", to.function());
    CHECK(poll(&one, 1, 10000) == 1);
    task.reset();
    CHECK(dispatches_until(queue, [&] { return to.times == 1; }));
    CHECK(to.status == DIBS_CANCELLED && !to.lock && to.detail.find("ended") != std::string::npos);
    CHECK(becomes([&] { return !taken(rt, "too late"); }));
}

/* What a program begins by the functions of dibs.h is no lock of this header, whatever its argument is. */
CASE(a_foreign_completion_is_dropped, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task holder(rt), task(rt);
    dibs_task *foreign = nullptr;
    told held, to;

    CHECK(lock_now(queue, holder, "foreign", held));
    task.begin_lock(queue, "foreign", to.function());
    CHECK(dibs_task_new(rt.get(), &foreign) == DIBS_OK);
    for (std::uintptr_t number = 1; number < 4; number++) {
        void *const arg = reinterpret_cast<void *>(number); /* NOLINT(performance-no-int-to-ptr): as the header does */
        CHECK(dibs_lock_begin(foreign, "of c", 0, nullptr, queue.get(), arg) == DIBS_OK);
        CHECK(queue.dispatch(10s) == 1 && to.times == 0);
    }
    dibs_task_free(foreign);
    held.lock.unlock();
    CHECK(dispatches_until(queue, [&] { return to.times == 1; }) && to.lock);
}

enum { many = 100000 };

/* Each has a lock under way, and another that waits in the task. */
void end_many_tasks(dibs::runtime &rt, dibs::queue &queue, std::size_t &cancelled)
{
    std::vector<dibs::task> tasks;
    auto counts = [&cancelled](const dibs_completion &done, const dibs::task_guard &) {
        cancelled += done.status == DIBS_CANCELLED;
    };

    for (int i = 0; i < many; i++) {
        tasks.emplace_back(rt);
        tasks.back().begin_lock(queue, "many end", counts);
        tasks.back().begin_lock(queue, "behind", counts);
    }
}

void *end_queue_of_many(void *rt)
{
    dibs::queue queue;
    std::size_t cancelled = 0;

    end_many_tasks(*static_cast<dibs::runtime *>(rt), queue, cancelled);
    return nullptr;
}

/* Of the calling thread: others may want the processor, too. */
std::time_t processor_seconds()
{
    timespec used = {};

    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0);
    return used.tv_sec;
}

/* The end of each takes as long as that of one, and the end of their queue no more stack than that of an empty one. */
CASE(many_tasks_end, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task holder(rt);
    std::size_t cancelled = 0;
    pthread_attr_t small;
    pthread_t thread;
    told held;

    CHECK(lock_now(queue, holder, "many end", held));
    const std::time_t before = processor_seconds();
    end_many_tasks(rt, queue, cancelled);
    CHECK(processor_seconds() - before < 15); /* it takes about one second; half a minute where it is quadratic */
    CHECK(dispatches_until(queue, [&] { return cancelled == 2 * many; }));
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 * 1024);
    CHECK(pthread_create(&thread, &small, end_queue_of_many, &rt) == 0 && pthread_join(thread, nullptr) == 0);
    pthread_attr_destroy(&small);
    held.lock.unlock();
    CHECK(becomes([&] { return !taken(rt, "many end"); }));
}

CASE(a_queue_ends, dibs::runtime &rt)
{
    auto queue = std::make_optional<dibs::queue>();
    const auto kept = std::make_shared<int>();
    auto tells = [kept](const dibs_completion &, const dibs::task_guard &) { CHECK(false); };
    told held;
    {
        dibs::task holder(rt), task(rt);
        CHECK(lock_now(*queue, holder, "queue ends", held));
        task.begin_lock(*queue, "queue ends", tells);
        task.begin_lock(*queue, "more", tells); /* waits in the task */
        CHECK(kept.use_count() == 4);
        queue.reset();
        CHECK(kept.use_count() == 2); /* what is never called is not kept */
        held.lock.unlock();
    }
    CHECK(becomes([&] { return !taken(rt, "queue ends"); }));
}

CASE(what_a_function_throws_leaves_dispatch, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task one(rt), two(rt);
    told to;

    one.begin_lock(queue, "throws",
                   [](const dibs_completion &, dibs::task_guard) { throw std::system_error(dibs::errc::overflow); });
    CHECK_THROWS(dibs::errc::overflow, static_cast<void>(queue.dispatch(10s)));
    CHECK(lock_now(queue, two, "throws", to));
}

/* Behind the function that threw, the next dispatch tells of what could not be begun, and then has told something. */
CASE(what_is_refused_is_told_after_a_throw, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task holder(rt), task(rt);
    told held, refused;
    dibs_lock_options bad{};

    bad.limit = 5; /* of a lock that is not shared */
    CHECK(lock_now(queue, holder, "thrown", held));
    task.begin_lock(
        queue, "thrown",
        [](const dibs_completion &, dibs::task_guard) { throw std::system_error(dibs::errc::overflow); }, 0ms);
    task.begin_lock(queue, "refused", refused.function(), dibs::forever, bad);
    task.begin_lock(queue, "refused too", refused.function(), dibs::forever, bad);
    CHECK_THROWS(dibs::errc::overflow, static_cast<void>(queue.dispatch(10s)));
    while (refused.times < 2)
        queue.dispatch(dibs::forever);
    CHECK(refused.status == DIBS_INVALID && refused.task == task.get());
}

/* A lock that waits in the task does not come before the end of a guard that the function drops. */
CASE(a_dropped_guard_gives_up_before_what_waits, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task holder(rt), task(rt), other(rt);
    told held, later, now;

    CHECK(lock_now(queue, holder, "waited for", held));
    task.begin_lock(queue, "dropped", [](const dibs_completion &, dibs::task_guard) {});
    task.begin_lock(queue, "waited for", later.function());
    CHECK(lock_now(queue, other, "dropped", now));
    CHECK(later.times == 0);
    held.lock.unlock();
    CHECK(dispatches_until(queue, [&] { return later.times == 1; }) && later.status == DIBS_OK);
}

/* So it is where the function keeps the guard in itself, and throws: it ends with what it has. */
CASE(a_guard_in_a_function_that_throws_gives_up_before_what_waits, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task holder(rt), task(rt), other(rt);
    told held, later, now;

    CHECK(lock_now(queue, holder, "waited for too", held));
    task.begin_lock(queue, "kept",
                    [kept = dibs::task_guard()](const dibs_completion &, dibs::task_guard guard) mutable {
                        kept = std::move(guard);
                        throw std::system_error(dibs::errc::overflow);
                    });
    task.begin_lock(queue, "waited for too", later.function());
    CHECK_THROWS(dibs::errc::overflow, static_cast<void>(queue.dispatch(10s)));
    CHECK(lock_now(queue, other, "kept", now));
    CHECK(later.times == 0);
    held.lock.unlock();
    CHECK(dispatches_until(queue, [&] { return later.times == 1; }) && later.status == DIBS_OK);
}

/* What waits in the task bears that the function acts for the task meanwhile. */
CASE(what_waits_bears_a_scope, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task task(rt), other(rt);
    told second, third, now;

    task.begin_lock(queue, "acted for", [&](const dibs_completion &, dibs::task_guard guard) {
        {
            dibs::task_scope inside(task);
            CHECK_THROWS(dibs::errc::busy, task.begin_lock(queue, "third", third.function()));
        }
        guard.unlock();
    });
    task.begin_lock(queue, "second", second.function());
    CHECK(dispatches_until(queue, [&] { return second.times == 1; }) && second.status == DIBS_OK);
    CHECK(lock_now(queue, other, "acted for", now));
    CHECK(third.times == 0);
}

/* The function of a completion begins more, and waits for it by dispatching. */
CASE(a_function_dispatches, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task task(rt);
    told outer, between, inner;

    task.begin_lock(queue, "outer", [&](const dibs_completion &, dibs::task_guard guard) {
        task.begin_lock(queue, "inner", inner.function());
        CHECK(dispatches_until(queue, [&] { return inner.times == 1; }) && inner.status == DIBS_OK);
        outer.lock = std::move(guard);
        outer.times++;
    });
    task.begin_lock(queue, "between", between.function());
    CHECK(dispatches_until(queue, [&] { return outer.times == 1; }));
    CHECK(between.times == 1);
    outer.lock.check();
}

/* Of what waited, nothing is under way whose completion would still come: the queue is readable all the same. */
CASE(a_task_ends_inside_its_scope, dibs::runtime &rt)
{
    dibs::queue queue;
    auto task = std::make_optional<dibs::task>(rt);
    told first, second, third;
    pollfd readable{queue.fd(), POLLIN, 0};

    CHECK(lock_now(queue, *task, "first", first));
    task->begin_lock(queue, "second", second.function());
    first.lock.unlock();
    task->begin_lock(queue, "third", third.function());
    CHECK(poll(&readable, 1, 10000) == 1); /* the second is granted */
    {
        dibs::task_scope inside(*task);
        queue.dispatch();
        CHECK(second.times == 1 && third.times == 0);
        task.reset();
    }
    CHECK(poll(&readable, 1, 10000) == 1);
    queue.dispatch();
    CHECK(third.times == 1 && third.status == DIBS_CANCELLED);
}

/* Another queue than that which is dispatched is told of what could not be begun. */
CASE(what_is_refused_wakes_its_own_queue, dibs::runtime &rt)
{
    dibs::queue queue, other;
    dibs::task task(rt);
    told first, refused;
    dibs_lock_options bad{};

    bad.limit = 5;
    task.begin_lock(queue, "in one queue", first.function());
    task.begin_lock(other, "in another", refused.function(), dibs::forever, bad);
    CHECK(dispatches_until(queue, [&] { return first.times == 1; }));
    while (refused.times == 0)
        other.dispatch(dibs::forever);
    CHECK(refused.status == DIBS_INVALID);
}

/* Who waits for a queue is woken without an unlock that the program did not call. */
CASE(what_is_refused_is_no_unlock, dibs::runtime &rt)
{
    dibs::queue queue;
    told first, refused;
    const std::uint64_t before = rt.stats().not_held;

    {
        dibs::task task(rt);
        task.begin_lock(queue, "no unlock", first.function());
        task.begin_lock(queue, "never begun", refused.function());
    }
    while (refused.times == 0)
        queue.dispatch(dibs::forever);
    CHECK(refused.status == DIBS_CANCELLED);
    CHECK(rt.stats().not_held == before);
}

CASE(tasks_move, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task first(rt);
    told to;

    CHECK(lock_now(queue, first, "moves", to));
    dibs::task second(std::move(first));
    CHECK(first.get() == nullptr && second.get() != nullptr); /* NOLINT: what is left of it is defined */
    first.cancel();
    CHECK_THROWS(dibs::errc::invalid, dibs::task_scope inside(first));
    CHECK_THROWS(dibs::errc::invalid, first.begin_lock(queue, "moves", to.function()));
    to.lock.check();
    second = dibs::task(rt);
    CHECK(becomes([&] { return !taken(rt, "moves"); }));
}

void a_runtime_closes()
{
    dibs::runtime rt(configuration());
    dibs::queue queue;
    dibs::task holder(rt), task(rt);
    told held, to;

    CHECK(lock_now(queue, holder, "closes", held));
    task.begin_lock(queue, "closes", to.function());
    CHECK(queue.dispatch(20ms) == 0);
    rt.shutdown();
    CHECK(dispatches_until(queue, [&] { return to.times == 1; }) && to.status == DIBS_CLOSED);
    CHECK_THROWS(dibs::errc::closed, dibs::task none(rt));
    rt.close();
    CHECK_THROWS(dibs::errc::closed, task.begin_lock(queue, "closes", to.function()));
}

/* Nothing can be begun any more, but the other queue is woken. */
void what_is_refused_at_the_end_wakes_its_own_queue()
{
    dibs::runtime rt(configuration());
    dibs::queue queue, other;
    dibs::task holder(rt), task(rt);
    told held, first, refused;

    CHECK(lock_now(queue, holder, "ends", held));
    task.begin_lock(queue, "ends", first.function());
    task.begin_lock(other, "in another", refused.function());
    rt.shutdown();
    CHECK(dispatches_until(queue, [&] { return first.times == 1; }) && first.status == DIBS_CLOSED);
    pollfd readable = {other.fd(), POLLIN, 0};
    CHECK(poll(&readable, 1, 10000) == 1);
    other.dispatch();
    CHECK(refused.times == 1 && refused.status == DIBS_CLOSED);
}

/* Tasks on one name, driven by threads that dispatch; each takes many turns. */
struct worker {
    worker(dibs::runtime &rt, dibs::queue &q, int &counter) : queue(q), task(rt), sum(counter)
    {
    }

    void go_on()
    {
        task.begin_lock(queue, "many", [this](const dibs_completion &done, dibs::task_guard lock) {
            CHECK(done.status == DIBS_OK && lock);
            sum++;
            lock.begin_release([this](const dibs_completion &end) {
                CHECK(end.status == DIBS_OK);
                if (++turns < most)
                    go_on();
                else
                    ended++;
            });
        });
    }

    enum { most = 20 };
    static inline std::atomic<int> ended{0};
    dibs::queue &queue;
    dibs::task task;
    int &sum;
    int turns = 0;
};

CASE(many_tasks_and_threads, dibs::runtime &rt)
{
    dibs::queue queue;
    std::vector<std::unique_ptr<worker>> workers;
    std::vector<std::thread> threads;
    int sum = 0;

    worker::ended = 0;
    for (int i = 0; i < 8; i++)
        workers.push_back(std::make_unique<worker>(rt, queue, sum));
    for (auto &one : workers)
        one->go_on();
    for (int i = 0; i < 3; i++)
        threads.emplace_back([&] { CHECK(dispatches_until(queue, [] { return worker::ended == 8; })); });
    for (std::thread &thread : threads)
        thread.join();
    CHECK(sum == 8 * worker::most);
}

/* ----------------------------------------------------------------------- coroutines */

#if defined(__cpp_lib_coroutine)

/* A coroutine that begins at once, whose frame remains until its handle's owner ends. */
struct job {
    struct promise_type {
        std::error_code thrown;

        job get_return_object()
        {
            return job{std::coroutine_handle<promise_type>::from_promise(*this)};
        }

        std::suspend_never initial_suspend() noexcept
        {
            return {};
        }

        std::suspend_always final_suspend() noexcept
        {
            return {};
        }

        void return_void()
        {
        }

        void unhandled_exception()
        {
            try {
                throw;
            } catch (const std::system_error &error) {
                thrown = error.code();
            }
        }
    };

    explicit job(std::coroutine_handle<promise_type> h) : handle(h)
    {
    }

    job(job &&other) noexcept : handle(std::exchange(other.handle, nullptr))
    {
    }

    job(const job &) = delete;
    job &operator=(const job &) = delete;
    job &operator=(job &&) = delete;

    ~job()
    {
        if (handle)
            handle.destroy();
    }

    bool done() const
    {
        return handle.done();
    }

    std::error_code thrown() const
    {
        return handle.promise().thrown;
    }

    std::coroutine_handle<promise_type> handle;
};

job takes_turns(dibs::runtime &rt, dibs::queue &queue, const char *name, int turns, int &sum)
{
    dibs::task task(rt);

    for (int i = 0; i < turns; i++) {
        dibs::task_guard lock = co_await task.lock(queue, name);
        const int before = sum;
        CHECK(lock && lock.fence() != 0);
        lock.check();
        dibs::task_guard own = co_await task.lock(queue, "own", 0ms, {0, DIBS_NO_REENTRY, 0});
        sum = before + 1;
        own.unlock();
        if (i % 2 == 0)
            co_await lock.release(); /* otherwise the end of the guard begins the unlock */
    }
}

CASE(coroutines_take_turns, dibs::runtime &rt)
{
    dibs::queue queue;
    std::vector<job> jobs;
    int sum = 0;

    for (int i = 0; i < 8; i++)
        jobs.push_back(takes_turns(rt, queue, "turns", 10, sum));
    CHECK(dispatches_until(
        queue, [&] { return std::all_of(jobs.begin(), jobs.end(), [](const job &one) { return one.done(); }); }));
    for (const job &one : jobs)
        CHECK(!one.thrown());
    CHECK(sum == 80);
    jobs.clear();
    CHECK(becomes([&] { return !taken(rt, "turns"); }));
}

job locks(dibs::task &task, dibs::queue &queue, const char *name, dibs::task_guard &to,
          dibs::detail::real_ms wait = dibs::forever)
{
    to = co_await task.lock(queue, name, wait);
}

job gives_up(dibs::task_guard &lock)
{
    co_await lock.release();
}

CASE(coroutines_are_told_of_failures, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task holder(rt), task(rt);
    dibs::task_guard held, none, empty;

    const job first = locks(holder, queue, "failures", held);
    CHECK(dispatches_until(queue, [&] { return first.done(); }) && !first.thrown() && held);
    const job second = locks(task, queue, "failures", none, 20ms);
    CHECK(dispatches_until(queue, [&] { return second.done(); }) && second.thrown() == dibs::errc::timeout && !none);
    const job third = locks(task, queue, "", none);
    CHECK(third.done() && third.thrown() == dibs::errc::invalid);
    const job fourth = gives_up(empty);
    CHECK(fourth.done() && fourth.thrown() == dibs::errc::not_held);
    {
        dibs::task_scope inside(task);
        const job fifth = locks(task, queue, "failures", none);
        CHECK(fifth.done() && fifth.thrown() == dibs::errc::busy);
    }
    const job sixth = locks(task, queue, "loss in a coroutine", none);
    CHECK(dispatches_until(queue, [&] { return sixth.done(); }) && none);
    CHECK(rt.force_unlock("loss in a coroutine"));
    CHECK(becomes([&] { return error_of([&] { none.check(); }).code == dibs::errc::lost; }));
    const job seventh = gives_up(none);
    CHECK(dispatches_until(queue, [&] { return seventh.done(); }) && seventh.thrown() == dibs::errc::lost);
}

/* A coroutine that is destroyed while it waits leaves nothing: neither the task's wait, nor a lock that comes later. */
CASE(coroutines_are_destroyed, dibs::runtime &rt)
{
    dibs::queue queue;
    dibs::task holder(rt), task(rt);
    dibs::task_guard held, none;
    int sum = 0;

    const job first = locks(holder, queue, "destroyed", held);
    CHECK(dispatches_until(queue, [&] { return first.done(); }));
    {
        const job waits = locks(task, queue, "destroyed", none), more = locks(task, queue, "more", none);
        const job has_its_own_task = takes_turns(rt, queue, "destroyed", 1, sum);
        CHECK(queue.dispatch(20ms) == 0 && !waits.done() && !has_its_own_task.done());
    }
    held.unlock();
    CHECK(dispatches_until(queue, [&] { return !taken(rt, "destroyed") && !taken(rt, "more"); }));
    const job again = locks(task, queue, "destroyed", none);
    CHECK(dispatches_until(queue, [&] { return again.done(); }) && none && sum == 0);
}

#if defined(__cpp_lib_jthread)
CASE(a_stop_cancels, dibs::runtime &rt)
{
    dibs::queue queue;
    std::stop_source stop;
    dibs::task holder(rt), first(rt, stop.get_token()), task(std::move(first));
    dibs::task_guard held, none;

    const job one = locks(holder, queue, "stop", held);
    CHECK(dispatches_until(queue, [&] { return one.done(); }));
    const job two = locks(task, queue, "stop", none);
    CHECK(queue.dispatch(20ms) == 0 && !two.done());
    in_another_thread([&] { stop.request_stop(); });
    CHECK(dispatches_until(queue, [&] { return two.done(); }) && two.thrown() == dibs::errc::cancelled);
    dibs::task late(rt, stop.get_token());
    const job three = locks(late, queue, "late", none);
    CHECK(dispatches_until(queue, [&] { return three.done(); }) && three.thrown() == dibs::errc::cancelled);
}
#endif
#endif

} // namespace

int main(int argc, char **argv)
{
    begin_test(argc, argv);
    {
        dibs::runtime rt(configuration().label("task_test"));
        run_cases(rt);
    }
    a_runtime_closes();
    what_is_refused_at_the_end_wakes_its_own_queue();
    return failures ? 1 : 0;
}
