/*
 * A part of dibs.hpp, which includes it: locks for programs that are not one thread for each
 * piece of work. dibs::task owns locks as a thread does; dibs::queue is where the ends of
 * calls arrive that do not block. See the sections of tasks and queues in dibs.h, whose
 * contracts hold, and doc/ASYNC.md for which of the ways below to take.
 *
 * Calls that block, for a job that moves from thread to thread:
 *
 *   dibs::runtime rt;
 *   dibs::mutex stock(rt, "sku:25");
 *   dibs::task job(rt);
 *   {
 *       dibs::task_scope inside(job);            // this thread acts for the job
 *       stock.lock();
 *   }
 *
 * Calls that do not block, with a function for the end of each:
 *
 *   dibs::runtime rt;
 *   dibs::queue queue;                           // queue.fd() is for poll, epoll, libuv, Asio
 *   dibs::task request(rt);
 *   request.begin_lock(queue, "sku:25", [](const dibs_completion &done, dibs::task_guard lock) {
 *       if (lock)
 *           update_stock("UPDATE ... WHERE fence <= ?", lock.fence());
 *       else
 *           std::fprintf(stderr, "%s\n", done.detail);
 *   });                                          // the end of lock begins the unlock
 *   queue.dispatch(dibs::forever);               // calls the function, on this thread
 *
 * In C++20, with coroutines, which queue.dispatch() resumes:
 *
 *   job_of_yours sell(dibs::runtime &rt, dibs::queue &queue, std::stop_token stop)
 *   {
 *       dibs::task task(rt, stop);
 *       dibs::task_guard lock = co_await task.lock(queue, "sku:25");
 *       update_stock("UPDATE ... WHERE fence <= ?", lock.fence());
 *       co_await lock.release();                 // throws if the lock was lost on the way
 *   }
 *
 * A task does one thing at a time. What is begun for it while something else is under way
 * (another lock, or an unlock that the end of a guard began) waits in the task until the
 * completion of that has been dispatched, and its function called. So two guards of one task may end one after the
 * other, and a lock may be begun right behind the end of a guard.
 */
#ifndef DIBS_TASK_HPP
#define DIBS_TASK_HPP

#include "dibs.hpp"

#include <cstdio>
#include <unordered_map>
#if defined(__cpp_impl_coroutine) && __has_include(<coroutine>)
#include <coroutine>
#endif
#if __cplusplus >= 202002L && __has_include(<stop_token>)
#include <stop_token>
#endif

namespace dibs {

/* A wait without end. */
inline constexpr detail::real_ms forever = detail::real_ms::max();

class task_guard;

namespace detail {

struct begun_lock;

/* Who is told of a completion, once, on the thread that dispatches. */
struct listener {
    listener() = default;
    listener(const listener &) = delete;
    listener &operator=(const listener &) = delete;
    virtual ~listener() = default;
    virtual void told(const dibs_completion &done, const std::shared_ptr<begun_lock> &what) = 0;
};

template <class Function> struct listener_of final : listener {
    explicit listener_of(Function f) : function(std::move(f))
    {
    }

    void told(const dibs_completion &done, const std::shared_ptr<begun_lock> &what) override
    {
        function(done, what);
    }

    Function function;
};

template <class Function> std::unique_ptr<listener> listen(Function function)
{
    return std::make_unique<listener_of<Function>>(std::move(function));
}

/* The inside of a queue. Locks that were begun refer to it, so it may outlive the queue's object. */
struct inbox {
    explicit inbox(dibs_queue *q) : queue(q)
    {
    }

    inbox(const inbox &) = delete;
    inbox &operator=(const inbox &) = delete;

    ~inbox()
    {
        dibs_task_free(bell);
        dibs_queue_free(queue);
    }

    /*
     * The number by which a completion finds the lock again: a number that nobody has any more is none of ours. Throws
     * what dibs_task_new returns, with the first lock.
     */
    void add(const std::shared_ptr<begun_lock> &what);
    void remove(std::uintptr_t number) noexcept;

    /* What a task could not begin. These require mutex. pop_refused: nullptr: there is none. */
    void push_refused(std::shared_ptr<begun_lock> what) noexcept;
    std::shared_ptr<begun_lock> pop_refused() noexcept;

    /* Wakes whoever waits for the queue, by a completion that is none of ours; for lack of memory, nobody. */
    void ring() noexcept; /* requires mutex */

    dibs_queue *const queue;
    std::mutex mutex;
    dibs_task *bell = nullptr; /* guarded by mutex; made with the first lock, because a closing runtime makes no task */
    std::uintptr_t last_number = 0;                                        /* guarded by mutex */
    std::unordered_map<std::uintptr_t, std::shared_ptr<begun_lock>> begun; /* guarded by mutex */
    std::shared_ptr<begun_lock> refused; /* guarded by mutex; a list: the next dispatch tells these of `refusal` */
    begun_lock *last_refused = nullptr;  /* guarded by mutex */
    bool ended = false;                  /* guarded by mutex: the queue's object has ended, so nobody is told */
};

/* The inside of a task: what it does, and in which order. Locks that were begun refer to it. */
struct owner {
    owner(dibs_runtime *runtime, dibs_task *t) : rt(runtime), known_as(t), task(t)
    {
    }

    /*
     * Begins the lock or the unlock, or puts it behind what is under way. If that fails, nothing has changed.
     * DIBS_NOT_HELD: the task has ended.
     */
    dibs_status begin(const std::shared_ptr<begun_lock> &what, bool unlocks) noexcept;

    /* An unlock that stays in the list if it can't be begun, because a thread is in the task or for lack of memory. */
    void begin_quietly(const std::shared_ptr<begun_lock> &what) noexcept;

    /* A completion was taken: nothing is under way. */
    void note_end() noexcept;

    /* The function of a completion was called: begins what comes next. A lock that can't be begun goes to its inbox. */
    void go_on() noexcept;

    dibs_status enter() noexcept;
    void leave() noexcept;
    void check(const char *name);
    void cancel() noexcept;
    bool has_ended() noexcept;
    void free_task() noexcept;

    dibs_runtime *const rt;    /* never freed by dibs */
    dibs_task *const known_as; /* in completions; only to compare here, since it may have been freed */
    std::mutex mutex;
    dibs_task *task;                   /* guarded by mutex; nullptr once the task has ended */
    bool busy = false;                 /* guarded by mutex: something is begun, and its completion not dispatched */
    bool inside = false;               /* guarded by mutex: a task_scope acts for the task: nothing can be begun */
    bool telling = false;              /* guarded by mutex: the function of the last completion runs */
    std::shared_ptr<begun_lock> first; /* guarded by mutex: what must still be begun, a list */
    begun_lock *last = nullptr;        /* guarded by mutex */

  private:
    /* These require mutex, and keep it. An inbox's mutex may be taken inside. */
    void begin_waiting() noexcept;
    dibs_status begin_first() noexcept;
    void push(const std::shared_ptr<begun_lock> &what) noexcept;
    void push_in_front(const std::shared_ptr<begun_lock> &what) noexcept;
    std::shared_ptr<begun_lock> pop() noexcept;
    void take_out(const begun_lock *what) noexcept;
    static void refuse(std::shared_ptr<begun_lock> what, dibs_status status, const char *why) noexcept;
};

/* A lock from its begin to the end of its unlock: the same object for both, so that to end a guard needs no memory. */
struct begun_lock {
    begun_lock(std::shared_ptr<inbox> i, std::shared_ptr<owner> o, std::string n, std::int64_t wait,
               const dibs_lock_options &how)
        : in(std::move(i)), by(std::move(o)), name(std::move(n)), wait_ms(wait), options(how)
    {
    }

    const std::shared_ptr<inbox> in;
    const std::shared_ptr<owner> by;
    const std::string name;
    const std::int64_t wait_ms;
    const dibs_lock_options options;
    std::uintptr_t number = 0;         /* read-only once in the inbox */
    std::uint64_t fence = 0;           /* read-only once granted */
    bool unlocks = false;              /* guarded by by->mutex: what must be begun is the unlock */
    std::shared_ptr<begun_lock> next;  /* of by's list: guarded by by->mutex; of in's: by in->mutex */
    bool lost = false;                 /* guarded by in->mutex */
    std::unique_ptr<listener> on_end;  /* guarded by in->mutex: of the lock, then of the unlock; none: nobody cares */
    std::unique_ptr<listener> on_lost; /* guarded by in->mutex */

    void drop_listener() noexcept
    {
        std::unique_ptr<listener> gone; /* ends behind the mutex: it may be anything */
        const std::lock_guard held(in->mutex);

        gone = std::move(on_end);
    }

    /* The queue has ended. What has no listener may be freed while a mutex is held. */
    void drop_listeners() noexcept
    {
        std::unique_ptr<listener> of_end, of_loss; /* as in drop_listener */
        const std::lock_guard held(in->mutex);

        of_end = std::move(on_end);
        of_loss = std::move(on_lost);
    }

    dibs_status refusal = DIBS_OK;                  /* guarded by in->mutex: why it is in in->refused */
    char why[sizeof(dibs_completion::detail)] = ""; /* likewise */
};

inline void inbox::add(const std::shared_ptr<begun_lock> &what)
{
    const std::lock_guard held(mutex);

    if (!bell)
        expect_ok(dibs_task_new(what->by->rt, &bell));
    do {
        last_number++;
    } while (last_number == 0 || begun.count(last_number) != 0);
    what->number = last_number;
    begun.emplace(last_number, what);
}

inline void inbox::remove(std::uintptr_t number) noexcept
{
    std::shared_ptr<begun_lock> what; /* ends behind the mutex: its listeners may be anything */
    const std::lock_guard held(mutex);
    const auto at = begun.find(number);

    if (at == begun.end())
        return;
    what.swap(at->second);
    begun.erase(at);
}

inline void inbox::push_refused(std::shared_ptr<begun_lock> what) noexcept
{
    begun_lock *const at = what.get();

    (last_refused ? last_refused->next : refused) = std::move(what);
    last_refused = at;
}

inline std::shared_ptr<begun_lock> inbox::pop_refused() noexcept
{
    std::shared_ptr<begun_lock> out = std::exchange(refused, nullptr);

    if (out)
        refused = std::move(out->next);
    if (!refused)
        last_refused = nullptr;
    return out;
}

/* A call for no name completes at once, and is no unlock; but a closing runtime begins nothing except unlocks. */
inline void inbox::ring() noexcept
{
    if (dibs_lock_names_begin(bell, nullptr, 0, 0, nullptr, queue, nullptr) == DIBS_CLOSED)
        static_cast<void>(dibs_unlock_begin(bell, "nothing", queue, nullptr));
}

inline void owner::push(const std::shared_ptr<begun_lock> &what) noexcept
{
    (last ? last->next : first) = what;
    last = what.get();
}

inline std::shared_ptr<begun_lock> owner::pop() noexcept
{
    std::shared_ptr<begun_lock> out = std::move(first);

    first = std::move(out->next);
    if (!first)
        last = nullptr;
    return out;
}

inline void owner::push_in_front(const std::shared_ptr<begun_lock> &what) noexcept
{
    if (!first)
        last = what.get();
    what->next = std::move(first);
    first = what;
}

inline void owner::take_out(const begun_lock *what) noexcept
{
    begun_lock *before = nullptr;

    for (begun_lock *at = first.get(); at != what; at = at->next.get())
        before = at;
    std::shared_ptr<begun_lock> &place = before ? before->next : first;
    if (last == what)
        last = before;
    place = std::shared_ptr<begun_lock>(std::move(place->next));
}

inline dibs_status owner::begin_first() noexcept
{
    const begun_lock &it = *first;
    dibs_queue *const to = it.in->queue;
    void *const arg = reinterpret_cast<void *>(it.number); /* NOLINT(performance-no-int-to-ptr): a number alone */
    const dibs_status status = it.unlocks ? dibs_unlock_begin(task, it.name.c_str(), to, arg)
                                          : dibs_lock_begin(task, it.name.c_str(), it.wait_ms, &it.options, to, arg);

    if (status == DIBS_OK) {
        busy = true;
        pop();
    }
    return status;
}

inline dibs_status owner::begin(const std::shared_ptr<begun_lock> &what, bool unlocks) noexcept
{
    const std::lock_guard held(mutex);

    if (!task)
        return DIBS_NOT_HELD;
    what->unlocks = unlocks;
    if (!unlocks)
        begin_waiting();
    if (busy || !unlocks)
        push(what);
    else
        push_in_front(what); /* what waits was not begun, so that the function of a completion can give up its lock */
    const dibs_status status = busy ? DIBS_OK : begin_first();
    if (status != DIBS_OK)
        take_out(what.get());
    return status;
}

inline void owner::begin_quietly(const std::shared_ptr<begun_lock> &what) noexcept
{
    {
        const std::lock_guard held(mutex);

        if (task) {
            what->unlocks = true;
            if (busy) {
                push(what);
                return;
            }
            push_in_front(what);
            begin_waiting();
            return;
        }
    }
    what->in->remove(what->number); /* the end of the task has given it up */
}

inline void owner::begin_waiting() noexcept
{
    while (!busy && !inside && first) {
        const dibs_status status = begin_first();
        if (status == DIBS_OK || first->unlocks)
            return; /* such an unlock is tried again when something changes */
        refuse(pop(), status, dibs_last_error());
    }
}

inline void owner::note_end() noexcept
{
    const std::lock_guard held(mutex);

    busy = false;
    telling = true;
}

inline void owner::go_on() noexcept
{
    const std::lock_guard held(mutex);

    telling = false;
    begin_waiting();
}

inline dibs_status owner::enter() noexcept
{
    const std::lock_guard held(mutex);
    const dibs_status status = dibs_task_enter(task);

    inside = inside || status == DIBS_OK;
    return status;
}

inline void owner::leave() noexcept
{
    const std::lock_guard held(mutex);
    const dibs_status status = task ? dibs_task_leave(task) : DIBS_OK;

    assert(status == DIBS_OK && "the calling thread did not enter this task last");
    static_cast<void>(status);
    inside = false;
    if (!telling)
        begin_waiting();
}

/* dibs_last_error() knows nothing of that: no function of dibs was called. */
[[noreturn]] inline void fail_without_task()
{
    fail(errc::not_held, "the task has ended, and what it held was given up");
}

inline void owner::check(const char *name)
{
    const std::lock_guard held(mutex);

    if (!task)
        fail_without_task();
    expect_ok(dibs_task_enter(task));
    const dibs_status status = dibs_check(rt, name);
    dibs_task_leave(task);
    expect_ok(status);
}

inline void owner::cancel() noexcept
{
    const std::lock_guard held(mutex);

    dibs_task_cancel(task);
}

inline void owner::refuse(std::shared_ptr<begun_lock> what, dibs_status status, const char *why) noexcept
{
    inbox &in = *what->in;
    const std::lock_guard held(in.mutex);

    if (in.ended)
        return; /* what the inbox had would keep the inbox */
    what->refusal = status;
    std::snprintf(what->why, sizeof what->why, "%s", why);
    in.ring();
    in.push_refused(std::move(what));
}

inline bool owner::has_ended() noexcept
{
    const std::lock_guard held(mutex);

    return !task;
}

inline void owner::free_task() noexcept
{
    const std::lock_guard held(mutex);

    dibs_task_free(std::exchange(task, nullptr));
    while (first)
        refuse(pop(), DIBS_CANCELLED, "the task ended before that was begun");
}

} // namespace detail

/* -------------------------------------------------------------------- queue */

/*
 * Where the ends of calls arrive that were begun for tasks: functions are called, and
 * coroutines resumed, where a thread dispatches, and nowhere else. Any number of threads may
 * dispatch; then two of these functions may run at once.
 *
 * A queue cannot be copied or moved. When it ends, what was begun goes on, and nobody is
 * told: let the tasks that used it end before. In a forked child, make new queues and tasks.
 */
class queue {
  public:
    /* Throws what dibs_queue_new returns. */
    queue() : in_(std::make_shared<detail::inbox>(make()))
    {
    }

    queue(const queue &) = delete;
    queue &operator=(const queue &) = delete;

    ~queue()
    {
        std::unordered_map<std::uintptr_t, std::shared_ptr<detail::begun_lock>> begun; /* ends behind the mutex */

        {
            const std::lock_guard held(in_->mutex);
            in_->ended = true;
            begun.swap(in_->begun);
            while (in_->pop_refused()) /* one by one: a long list that ends by itself takes a stack as long */
                continue;
        }
        for (const auto &it : begun)
            it.second->drop_listeners();
    }

    /* Readable while there is something to dispatch, for poll and its like alone. -1: see dibs_queue_fd. */
    int fd() const noexcept
    {
        return dibs_queue_fd(in_->queue);
    }

    /*
     * Waits for that time at the most until a call has ended, then calls the functions and
     * resumes the coroutines of all that have, one after the other, on this thread; after
     * 256 of them it returns, so that a loop comes to its other work. Returns how many
     * completions that were. What a function throws leaves dispatch(), and the next call goes on
     * behind it: make it at once, for fd() need not be readable then.
     */
    std::size_t dispatch(detail::real_ms wait = detail::real_ms::zero())
    {
        enum { most = 256 };
        dibs_completion done;
        std::size_t count = 0;
        bool told = tell_refused();

        while (count < most && dibs_queue_take(in_->queue, &done, 1, told ? 0 : detail::wait_ms(wait)) == 1) {
            told = true;
            count++;
            tell(done);
            tell_refused();
        }
        return count;
    }

    /*
     * For the functions of dibs.h; remains this object's. Whoever takes from it takes what
     * dispatch() would have handed out; and dispatch() drops what others than this header began.
     */
    dibs_queue *get() const noexcept
    {
        return in_->queue;
    }

  private:
    friend class task;
    friend class task_guard;

    static dibs_queue *make()
    {
        dibs_queue *out = nullptr;

        detail::expect_ok(dibs_queue_new(&out));
        return out;
    }

    void tell(const dibs_completion &taken);
    bool tell_refused();

    const std::shared_ptr<detail::inbox> in_;
};

/* -------------------------------------------------------------- task_guard */

/*
 * Holds a lock for a task, from the completion of its begin until the guard ends, which
 * begins the unlock and does not block. May be moved, also to another thread. It may outlive
 * its task, whose end has given the lock up, and then does nothing.
 *
 * If there is no memory to begin the unlock, the lock is held until the task does something
 * else or ends. So it is while a thread is in the task (task_scope).
 */
class task_guard {
  public:
    /* Holds nothing. */
    task_guard() noexcept = default;

    task_guard(task_guard &&other) noexcept = default;

    /* Begins the unlock of what this guard held. */
    task_guard &operator=(task_guard &&other) noexcept
    {
        if (this != &other) {
            unlock();
            what_ = std::move(other.what_);
        }
        return *this;
    }

    task_guard(const task_guard &) = delete;
    task_guard &operator=(const task_guard &) = delete;

    ~task_guard()
    {
        unlock();
    }

    /* Whether there is a lock that this guard will unlock; whether its lease was lost meanwhile says check(). */
    explicit operator bool() const noexcept
    {
        return what_ != nullptr;
    }

    /* Begins the unlock, and reports nothing; the guard is empty. Does nothing the second time. */
    void unlock() noexcept
    {
        const std::shared_ptr<detail::begun_lock> what = std::move(what_);

        what_.reset();
        if (what)
            what->by->begin_quietly(what);
    }

    /*
     * Begins the unlock, and calls function(const dibs_completion &) where its completion is
     * dispatched, with what dibs_unlock would have returned: DIBS_LOST if another may have
     * been inside; with DIBS_CANCELLED if the task ended before the unlock could be begun,
     * which gave the lock up. Throws errc::not_held where the guard is empty, and what
     * dibs_unlock_begin returns: the guard then holds on. Afterwards the guard is empty.
     */
    template <class Function> void begin_release(Function function)
    {
        begin_release_for(
            detail::listen([f = std::move(function)](const dibs_completion &done, const auto &) mutable { f(done); }));
    }

    /*
     * Calls function(const dibs_completion &), where that is dispatched, when it is known
     * that the lease was lost while the task holds the lock; at once if that was dispatched
     * before. Never called by the guard of a re-entry: the guard of the first acquire is the
     * one that hears of it, and where that one was released first, only check() tells.
     * Throws errc::not_held where the guard is empty.
     */
    template <class Function> void on_lost(Function function)
    {
        const std::shared_ptr<detail::begun_lock> what = held();
        auto listener =
            detail::listen([f = std::move(function)](const dibs_completion &done, const auto &) mutable { f(done); });
        bool lost = false;

        {
            const std::lock_guard locked(what->in->mutex);
            lost = what->lost;
            if (!lost && !what->in->ended)
                what->on_lost.swap(listener);
        }
        if (lost)
            listener->told(lost_before(*what), what);
    }

    /*
     * Throws errc::lost if the lease has ended, errc::not_held if the guard is empty or the
     * task has ended, errc::busy while a thread is in the task or something is under way for
     * it. No I/O: see dibs_check.
     */
    void check() const
    {
        const std::shared_ptr<detail::begun_lock> what = held();

        what->by->check(what->name.c_str());
    }

    /* The fence of the hold, for the resource that the lock protects: see dibs_hold. 0 where the guard is empty. */
    std::uint64_t fence() const noexcept
    {
        return what_ ? what_->fence : 0;
    }

#if defined(__cpp_lib_coroutine)
    class release_awaitable;

    /*
     * In a coroutine, co_await lock.release(): begins the unlock, waits for its completion
     * without a thread, and throws what dibs_unlock returns, as guard::release() does. The
     * coroutine resumes where the queue is dispatched.
     */
    [[nodiscard]] release_awaitable release();
#endif

  private:
    friend class queue;
    friend class task;

    explicit task_guard(std::shared_ptr<detail::begun_lock> what) noexcept : what_(std::move(what))
    {
    }

    const std::shared_ptr<detail::begun_lock> &held() const
    {
        if (!what_)
            detail::fail(errc::not_held, "the guard holds nothing");
        return what_;
    }

    void begin_release_for(std::unique_ptr<detail::listener> listener);

    static dibs_completion lost_before(const detail::begun_lock &what)
    {
        dibs_completion out{};

        out.kind = DIBS_DONE_LOST;
        out.status = DIBS_LOST;
        out.task = what.by->known_as;
        out.fence = what.fence;
        out.name = what.name.c_str();
        std::snprintf(out.detail, sizeof out.detail, "%s", dibs_status_text(DIBS_LOST));
        return out;
    }

    std::shared_ptr<detail::begun_lock> what_;
};

/* --------------------------------------------------------------------- task */

/*
 * An owner of locks that is no thread: see dibs_task in dibs.h. Two tasks exclude each
 * other, also on one thread. A task can be moved, not copied; what was moved from is none,
 * and its functions throw errc::invalid, or do nothing. No thread may use the object while
 * it is moved, assigned to or destroyed, except for guards of its locks.
 */
class task {
  public:
    /* Throws what dibs_task_new returns. */
    explicit task(const runtime &rt) : owner_(make(rt))
    {
    }

#if defined(__cpp_lib_jthread)
    /* The same; a request to stop cancels the task, as cancel() does, on the thread that requests it. */
    task(const runtime &rt, std::stop_token stop) : task(rt)
    {
        auto cancels = [by = owner_]() noexcept { by->cancel(); };

        stop_ = std::make_shared<std::stop_callback<decltype(cancels)>>(std::move(stop), std::move(cancels));
    }
#endif

    task(task &&other) noexcept = default;

    /* Ends what this task was first. */
    task &operator=(task &&other) noexcept
    {
        if (this != &other) {
            end();
            owner_ = std::move(other.owner_);
            stop_ = std::move(other.stop_);
        }
        return *this;
    }

    task(const task &) = delete;
    task &operator=(const task &) = delete;

    /*
     * dibs_task_free, which does not block: what waits is cancelled, but each function is
     * still called, and each coroutine resumed; what is held is given up in the background.
     */
    ~task()
    {
        end();
    }

    /*
     * From any thread: what the task waits for, and each first acquire of it that comes
     * later, ends with errc::cancelled, unless the lock was granted before. The task stays
     * cancelled; what it holds it goes on holding, and unlocks work. See dibs_task_cancel.
     */
    void cancel() noexcept
    {
        if (owner_)
            owner_->cancel();
    }

    /*
     * Begins an acquire, and does not block. Calls function(const dibs_completion &,
     * task_guard) where its completion is dispatched: the guard holds the lock if the status
     * is DIBS_OK, and is empty otherwise; if the task has ended before, the lock was given up
     * with it, and the status is DIBS_CANCELLED. wait and options are those of
     * mutex::try_lock_for() and dibs_lock_with. If the function does not keep the guard, the lock is given up at
     * once. The function may be one that can only be moved.
     *
     * Throws what dibs_lock_begin returns, but for DIBS_BUSY because of another begun call of
     * this task: the acquire then waits until that one's completion was dispatched and its
     * function has returned, or has called begin_lock itself; and if it can't be begun then, a
     * dispatch of q tells the function of that. errc::busy: a thread is in the task.
     */
    template <class Function>
    void begin_lock(queue &q, std::string_view name, Function function, detail::real_ms wait = forever,
                    const dibs_lock_options &options = {})
    {
        auto told = [f = std::move(function)](const dibs_completion &done,
                                              const std::shared_ptr<detail::begun_lock> &what) mutable {
            f(done, done.status == DIBS_OK ? task_guard(what) : task_guard());
        };

        begin(prepare(q, name, wait, options), detail::listen(std::move(told)));
    }

#if defined(__cpp_lib_coroutine)
    class lock_awaitable;

    /*
     * In a coroutine, co_await task.lock(queue, name): acquires the lock without a thread
     * that waits, and returns a task_guard. Throws what dibs_lock_with returns, or
     * errc::cancelled. The coroutine resumes where the queue is dispatched. If it is
     * destroyed while it waits, the lock is given up as soon as it is granted; a task that is
     * destroyed with it waits no longer.
     */
    [[nodiscard]] lock_awaitable lock(queue &q, std::string_view name, detail::real_ms wait = forever,
                                      const dibs_lock_options &options = {});
#endif

    /* For the functions of dibs.h; remains this object's. nullptr when moved from. */
    dibs_task *get() const noexcept
    {
        return owner_ ? owner_->task : nullptr;
    }

  private:
    friend class task_scope;

    static std::shared_ptr<detail::owner> make(const runtime &rt)
    {
        dibs_task *raw = nullptr;

        detail::expect_ok(dibs_task_new(rt.get(), &raw));
        std::unique_ptr<dibs_task, void (*)(dibs_task *)> kept(raw, dibs_task_free);
        auto out = std::make_shared<detail::owner>(rt.get(), raw);
        static_cast<void>(kept.release());
        return out;
    }

    void end() noexcept
    {
        stop_.reset();
        if (owner_)
            owner_->free_task();
        owner_.reset();
    }

    const std::shared_ptr<detail::owner> &owner() const
    {
        if (!owner_)
            detail::fail(errc::invalid, "the task was moved from");
        return owner_;
    }

    std::shared_ptr<detail::begun_lock> prepare(queue &q, std::string_view name, detail::real_ms wait,
                                                const dibs_lock_options &options)
    {
        return std::make_shared<detail::begun_lock>(q.in_, owner(), detail::checked_name(name), detail::wait_ms(wait),
                                                    options);
    }

    static void begin(const std::shared_ptr<detail::begun_lock> &what, std::unique_ptr<detail::listener> listener)
    {
        what->on_end = std::move(listener);
        what->in->add(what);
        const dibs_status status = what->by->begin(what, false);
        if (status != DIBS_OK) {
            what->in->remove(what->number);
            detail::fail(status);
        }
    }

    std::shared_ptr<detail::owner> owner_;
    std::shared_ptr<void> stop_; /* what std::stop_callback there is: of one size in all standards */
};

/*
 * While it lasts, the calling thread acts for the task: mutexes and all else of the task's
 * runtime concern the locks of the task. Scopes are left in the opposite order, by the
 * thread that made them, and cannot be copied or moved. The task may end meanwhile.
 */
class task_scope {
  public:
    /*
     * Throws what dibs_task_enter returns: errc::busy while a thread is in the task, or
     * something that was begun for it has not ended.
     */
    explicit task_scope(const task &t) : owner_(t.owner())
    {
        detail::expect_ok(owner_->enter());
    }

    task_scope(const task_scope &) = delete;
    task_scope &operator=(const task_scope &) = delete;

    ~task_scope()
    {
        owner_->leave();
    }

  private:
    const std::shared_ptr<detail::owner> owner_;
};

/* ------------------------------------------------------- what dispatch does */

namespace detail {

/* From when a completion was taken until its function was called, which may throw, or end the task. */
class after_end {
  public:
    explicit after_end(std::shared_ptr<owner> o) : owner_(std::move(o))
    {
        if (owner_)
            owner_->note_end();
    }

    after_end(const after_end &) = delete;
    after_end &operator=(const after_end &) = delete;

    ~after_end()
    {
        if (owner_)
            owner_->go_on();
    }

  private:
    const std::shared_ptr<owner> owner_;
};

} // namespace detail

inline void queue::tell(const dibs_completion &taken)
{
    dibs_completion done = taken;
    std::shared_ptr<detail::begun_lock> what;
    std::unique_ptr<detail::listener> listener;

    {
        const std::lock_guard held(in_->mutex);
        const auto at = in_->begun.find(reinterpret_cast<std::uintptr_t>(done.arg));
        if (at == in_->begun.end() || at->second->by->known_as != done.task)
            return;
        what = at->second;
        if (done.kind == DIBS_DONE_LOST) {
            what->lost = true;
            listener = std::move(what->on_lost);
            done.name = what->name.c_str(); /* stays, whatever the task begins meanwhile */
        } else {
            listener = std::move(what->on_end);
        }
        if (done.kind == DIBS_DONE_UNLOCK || (done.kind == DIBS_DONE_LOCK && done.status != DIBS_OK))
            in_->begun.erase(at);
    }
    if (done.kind == DIBS_DONE_LOCK)
        what->fence = done.fence;
    const detail::after_end after(done.kind != DIBS_DONE_LOST ? what->by : nullptr);
    if (done.kind == DIBS_DONE_LOCK && done.status == DIBS_OK && what->by->has_ended()) {
        in_->remove(what->number);
        done.status = DIBS_CANCELLED;
        done.fence = 0;
        std::snprintf(done.detail, sizeof done.detail, "the task has ended, and what it held was given up");
    }
    const std::unique_ptr<detail::listener> tells = std::move(listener); /* ends before `after`: may have a guard */
    if (tells)
        tells->told(done, what);
    else if (done.kind == DIBS_DONE_LOCK && done.status == DIBS_OK)
        task_guard(std::move(what)).unlock(); /* whoever waited is gone */
}

/* Returns whether there was any. */
inline bool queue::tell_refused()
{
    for (bool any = false;; any = true) {
        dibs_completion done{};
        std::shared_ptr<detail::begun_lock> what;
        std::unique_ptr<detail::listener> listener;
        {
            const std::lock_guard held(in_->mutex);
            what = in_->pop_refused();
            if (!what)
                return any;
            listener = std::move(what->on_end);
            done.task = what->by->known_as;
            done.status = what->refusal;
            std::snprintf(done.detail, sizeof done.detail, "%s", what->why);
        }
        in_->remove(what->number);
        done.kind = what->unlocks ? DIBS_DONE_UNLOCK : DIBS_DONE_LOCK;
        if (listener)
            listener->told(done, what);
    }
}

inline void task_guard::begin_release_for(std::unique_ptr<detail::listener> listener)
{
    const std::shared_ptr<detail::begun_lock> what = held();

    {
        const std::lock_guard locked(what->in->mutex);
        if (!what->in->ended)
            what->on_end = std::move(listener);
    }
    what_.reset(); /* once that is begun, the function may run on another thread, and end this guard */
    const dibs_status status = what->by->begin(what, true);
    if (status == DIBS_OK)
        return;
    what_ = what;
    what->drop_listener();
    if (status == DIBS_NOT_HELD)
        detail::fail_without_task();
    detail::fail(status);
}

/* --------------------------------------------------------------- coroutines */

#if defined(__cpp_lib_coroutine)

namespace detail {

/* Resumes a coroutine with what an awaitable of it returns. The awaitable lives in the coroutine's frame. */
class awaitable {
  public:
    explicit awaitable(std::shared_ptr<begun_lock> what) noexcept : what_(std::move(what))
    {
    }

    awaitable(const awaitable &) = delete;
    awaitable &operator=(const awaitable &) = delete;

    /* The coroutine may be destroyed while it waits. */
    ~awaitable()
    {
        if (begun_ && what_)
            what_->drop_listener();
    }

    bool await_ready() const noexcept
    {
        return false;
    }

  protected:
    std::unique_ptr<listener> resumes(std::coroutine_handle<> coroutine)
    {
        begun_ = true;
        return listen([this, coroutine](const dibs_completion &done, const std::shared_ptr<begun_lock> &) {
            what_.reset();
            done_ = done;
            coroutine.resume();
        });
    }

    void throw_failure() const
    {
        if (done_.status != DIBS_OK)
            fail(static_cast<errc>(done_.status), done_.detail);
    }

    std::shared_ptr<begun_lock> what_; /* until the completion is dispatched */

  private:
    bool begun_ = false;
    dibs_completion done_{};
};

} // namespace detail

class [[nodiscard]] task::lock_awaitable : public detail::awaitable {
  public:
    using awaitable::awaitable;

    void await_suspend(std::coroutine_handle<> coroutine)
    {
        const std::shared_ptr<detail::begun_lock> what = what_;

        granted_ = what;
        begin(what, resumes(coroutine)); /* from then on the coroutine may run on another thread, and end this object */
    }

    task_guard await_resume()
    {
        throw_failure();
        return task_guard(std::move(granted_));
    }

  private:
    std::shared_ptr<detail::begun_lock> granted_;
};

inline task::lock_awaitable task::lock(queue &q, std::string_view name, detail::real_ms wait,
                                       const dibs_lock_options &options)
{
    return lock_awaitable(prepare(q, name, wait, options));
}

class [[nodiscard]] task_guard::release_awaitable : public detail::awaitable {
  public:
    explicit release_awaitable(task_guard &guard) : awaitable(guard.held()), guard_(&guard)
    {
    }

    void await_suspend(std::coroutine_handle<> coroutine)
    {
        guard_->begin_release_for(resumes(coroutine));
    }

    void await_resume() const
    {
        throw_failure();
    }

  private:
    task_guard *const guard_;
};

inline task_guard::release_awaitable task_guard::release()
{
    return release_awaitable(*this);
}

#endif

} // namespace dibs

#endif
