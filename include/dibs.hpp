/*
 * dibs for C++17 and later: the locks of dibs.h as a mutex of the standard library's kind.
 *
 * An example
 *
 *   #include <dibs.hpp>
 *
 *   dibs::runtime rt;                           // $DIBS_URL or redis://127.0.0.1:6379
 *   dibs::mutex stock(rt, "sku:25");
 *   {
 *       std::lock_guard lock(stock);            // or std::unique_lock, std::scoped_lock
 *       ...
 *   }
 *   dibs::guard lock(stock);
 *   update_stock("UPDATE ... WHERE fence <= ?", lock.fence());
 *   lock.release();                             // throws if the lock was lost on the way
 *
 *   dibs::mutex alice(rt, "account:alice"), bob(rt, "account:bob");
 *   const auto both = dibs::lock(alice, bob);   // several locks, in an order that all keep to
 *
 *   dibs::shared_mutex prices(rt, "prices");    // for std::shared_lock
 *   dibs::semaphore workers(rt, "workers", 3);  // three at a time, on all hosts together
 *
 * For event loops, coroutines and pools whose jobs move between threads there are
 * dibs::task and dibs::queue: see dibs_task.hpp, which this header includes.
 *
 * Everything here is inline and calls dibs.h, whose model, promises and caveats hold: the
 * owner of a lock is a thread, a lock is reentrant, a lease may be lost. This header needs
 * no other library than dibs.
 *
 * Errors are std::system_error with a code of dibs::category(), whose value is a
 * dibs::errc. what() begins with what dibs_last_error() said. If exceptions are switched off
 * (-fno-exceptions), an error ends the program by std::terminate. Any function that is not
 * noexcept may also throw std::bad_alloc.
 *
 * Durations are clamped: a wait that is negative or not a number is one try, a wait that is
 * too long for dibs is one without end, and any other is rounded up to whole milliseconds.
 *
 * Unless a class or function says otherwise, a function may be called from any thread, and
 * what is passed in is copied.
 */
#ifndef DIBS_HPP
#define DIBS_HPP

#if __cplusplus < 201703L
#error "dibs.hpp needs C++17 or later (-std=c++17)"
#endif

#include "dibs.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace dibs {

/* ------------------------------------------------------------------- errors */

/* The statuses of dibs.h other than DIBS_OK, with their numbers. Later versions may add some. */
enum class errc {
    busy = DIBS_BUSY,
    timeout = DIBS_TIMEOUT,
    not_held = DIBS_NOT_HELD,
    lost = DIBS_LOST,
    unavailable = DIBS_UNAVAILABLE,
    denied = DIBS_DENIED,
    store_error = DIBS_STORE_ERROR,
    invalid = DIBS_INVALID,
    no_memory = DIBS_NO_MEMORY,
    closed = DIBS_CLOSED,
    overflow = DIBS_OVERFLOW,
    cancelled = DIBS_CANCELLED
};

namespace detail {

class error_category final : public std::error_category {
  public:
    const char *name() const noexcept override
    {
        return "dibs";
    }

    std::string message(int value) const override
    {
        return dibs_status_text(static_cast<dibs_status>(value));
    }

    std::error_condition default_error_condition(int value) const noexcept override
    {
        switch (static_cast<errc>(value)) {
        case errc::busy:
            return std::errc::device_or_resource_busy;
        case errc::timeout:
            return std::errc::timed_out;
        case errc::not_held:
            return std::errc::operation_not_permitted;
        case errc::unavailable:
            return std::errc::host_unreachable;
        case errc::denied:
            return std::errc::permission_denied;
        case errc::store_error:
            return std::errc::io_error;
        case errc::invalid:
            return std::errc::invalid_argument;
        case errc::no_memory:
            return std::errc::not_enough_memory;
        case errc::closed:
        case errc::cancelled:
            return std::errc::operation_canceled;
        case errc::overflow:
            return std::errc::value_too_large;
        case errc::lost:
            break;
        }
        return std::error_condition(value, *this);
    }
};

} // namespace detail

/*
 * The category of all errors of dibs; one object in a program. Its codes compare equal to
 * these conditions: busy to std::errc::device_or_resource_busy, timeout to timed_out,
 * not_held to operation_not_permitted, unavailable to host_unreachable, denied to
 * permission_denied, store_error to io_error, invalid to invalid_argument, no_memory to
 * not_enough_memory, closed and cancelled to operation_canceled, overflow to
 * value_too_large. Nothing in std::errc means lost: compare with dibs::errc::lost.
 */
DIBS_API inline const std::error_category &category() noexcept
{
    static const detail::error_category instance;

    return instance;
}

inline std::error_code make_error_code(errc value) noexcept
{
    return std::error_code(static_cast<int>(value), category());
}

} // namespace dibs

template <> struct std::is_error_code_enum<dibs::errc> : std::true_type {
};

namespace dibs {
namespace detail {

[[noreturn]] inline void fail(errc value, const std::string &what)
{
#if defined(__cpp_exceptions)
    throw std::system_error(make_error_code(value), what);
#else
    static_cast<void>(value);
    static_cast<void>(what);
    std::terminate();
#endif
}

/* For the status that the calling thread's last call returned. */
[[noreturn]] inline void fail(dibs_status status)
{
    fail(static_cast<errc>(status), dibs_last_error());
}

inline void expect_ok(dibs_status status)
{
    if (status != DIBS_OK)
        fail(status);
}

/* A C string ends at its first NUL, so two texts that differ behind one would be the same to dibs. */
inline std::string without_nul(const char *what, std::string_view text)
{
    if (text.find('\0') != std::string_view::npos)
        fail(errc::invalid, std::string(what) + " contains a NUL");
    return std::string(text);
}

inline std::string checked_name(std::string_view name)
{
    if (name.empty() || name.size() > DIBS_NAME_MAX)
        fail(errc::invalid, "the name has " + std::to_string(name.size()) + " bytes; it must have from 1 to " +
                                std::to_string(DIBS_NAME_MAX));
    return without_nul("the name", name);
}

using real_ms = std::chrono::duration<long double, std::milli>;

inline dibs_lock_options with_flags(dibs_lock_options options, std::uint32_t flags) noexcept
{
    options.flags = flags;
    return options;
}

/* A wait for dibs_timedlock. The comparisons are false for a number that is none. */
inline std::int64_t wait_ms(real_ms wait) noexcept
{
    if (!(wait.count() > 0))
        return 0;
    return wait.count() < 4e18L ? static_cast<std::int64_t>(std::ceil(wait.count())) : DIBS_WAIT_FOREVER;
}

/* A time for a field of 32 bits: never 0, which is the default there, nor the largest number, which is "none". */
template <class Period> inline std::uint32_t field(std::chrono::duration<long double, Period> time) noexcept
{
    if (!(time.count() > 1))
        return 1;
    return time.count() < UINT32_MAX - 1 ? static_cast<std::uint32_t>(std::ceil(time.count())) : UINT32_MAX - 1;
}

} // namespace detail

/* ------------------------------------------------------------------ runtime */

/*
 * Called as dibs_event_fn is, in dibs.h: for one event after another, on a thread of the
 * runtime that does nothing else. May block; must not close or destroy its own runtime. An
 * exception that leaves the function ends the program by std::terminate.
 */
using event_function = std::function<void(const dibs_event &)>;

/*
 * A configuration that owns what it is made of. Each function sets the field of dibs_config
 * that has its name, and returns the configuration:
 *
 *   dibs::runtime rt(dibs::config().url("redis://127.0.0.1").lease(10s).label("shop"));
 *
 * What is not set has its default. A time is rounded up to the field's unit; a time outside
 * of the field's range is refused when the runtime opens, with errc::invalid. Zero or less
 * is the smallest unit, but for handoff and spin, where it stands for DIBS_NO_HANDOFF and
 * DIBS_NO_SPIN, and for keep, where it keeps nothing. A text with a NUL is refused at once,
 * with errc::invalid. A configuration may be copied, and used for several runtimes.
 */
class config {
  public:
    /* Adds one URL: call url once for one store, and 3, 5, ... 15 times for a quorum. */
    config &url(std::string_view value)
    {
        urls_.push_back(detail::without_nul("a URL", value));
        return *this;
    }

    config &key_prefix(std::string_view value)
    {
        return text(&dibs_config::key_prefix, "key_prefix", value);
    }

    config &label(std::string_view value)
    {
        return text(&dibs_config::label, "label", value);
    }

    config &lease(detail::real_ms value) noexcept
    {
        return number(&dibs_config::lease_ms, detail::field(value));
    }

    config &renew(detail::real_ms value) noexcept
    {
        return number(&dibs_config::renew_ms, detail::field(value));
    }

    config &connect_timeout(detail::real_ms value) noexcept
    {
        return number(&dibs_config::connect_timeout_ms, detail::field(value));
    }

    config &command_timeout(detail::real_ms value) noexcept
    {
        return number(&dibs_config::command_timeout_ms, detail::field(value));
    }

    config &outage(detail::real_ms value) noexcept
    {
        return number(&dibs_config::outage_ms, detail::field(value));
    }

    config &handoff(detail::real_ms value) noexcept
    {
        return number(&dibs_config::handoff_ms, value.count() > 0 ? detail::field(value) : DIBS_NO_HANDOFF);
    }

    config &spin(std::chrono::duration<long double, std::micro> value) noexcept
    {
        return number(&dibs_config::spin_us, value.count() > 0 ? detail::field(value) : DIBS_NO_SPIN);
    }

    config &keep(detail::real_ms value) noexcept
    {
        return number(&dibs_config::keep_ms, value.count() > 0 ? detail::field(value) : 0);
    }

    config &min_replicas(std::uint32_t value) noexcept
    {
        return number(&dibs_config::min_replicas, value);
    }

    config &replica_timeout(detail::real_ms value) noexcept
    {
        return number(&dibs_config::replica_timeout_ms, detail::field(value));
    }

    config &durable(bool value = true) noexcept
    {
        return number(&dibs_config::durable, value ? 1 : 0);
    }

    config &tls_ca_file(std::string_view value)
    {
        return text(&dibs_config::tls_ca_file, "tls_ca_file", value);
    }

    config &tls_cert_file(std::string_view value)
    {
        return text(&dibs_config::tls_cert_file, "tls_cert_file", value);
    }

    config &tls_key_file(std::string_view value)
    {
        return text(&dibs_config::tls_key_file, "tls_key_file", value);
    }

    config &tls_server_name(std::string_view value)
    {
        return text(&dibs_config::tls_server_name, "tls_server_name", value);
    }

    config &sentinel_user(std::string_view value)
    {
        return text(&dibs_config::sentinel_user, "sentinel_user", value);
    }

    config &sentinel_password(std::string_view value)
    {
        return text(&dibs_config::sentinel_password, "sentinel_password", value);
    }

    /* The runtime keeps a copy of the function until it is closed. */
    config &on_event(event_function value)
    {
        on_event_ = std::move(value);
        return *this;
    }

  private:
    friend class runtime;
    using text_field = const char *dibs_config::*;

    config &text(text_field which, const char *what, std::string_view value)
    {
        texts_.emplace_back(which, detail::without_nul(what, value));
        return *this;
    }

    config &number(std::uint32_t dibs_config::*which, std::uint32_t value) noexcept
    {
        numbers_.*which = value;
        return *this;
    }

    dibs_config numbers_{};
    std::vector<std::string> urls_;
    std::vector<std::pair<text_field, std::string>> texts_; /* of two for one field, the later one counts */
    event_function on_event_;
};

/*
 * A runtime: dibs_open when it is made, dibs_close when it is destroyed.
 *
 * It can be moved, not copied. Moving it disturbs nothing: mutexes, and calls of other
 * threads, go on with the same runtime. The object that was moved from has no runtime, and
 * every function of it throws errc::invalid, or does nothing. No thread may use the object
 * while it is moved, closed, assigned to or destroyed; mutexes may be used all the while,
 * and outlive it.
 */
class runtime {
  public:
    /* Opens with the defaults: the URLs of $DIBS_URL. Throws what dibs_open returns. */
    runtime()
    {
        detail::expect_ok(dibs_open(&rt_, nullptr));
    }

    explicit runtime(const config &how)
    {
        std::vector<const char *> urls;
        dibs_config raw = how.numbers_;

        for (const std::string &url : how.urls_)
            urls.push_back(url.c_str());
        raw.urls = urls.data();
        raw.url_count = urls.size();
        for (const auto &[which, value] : how.texts_)
            raw.*which = value.c_str();
        if (how.on_event_) {
            on_event_ = std::make_unique<event_function>(how.on_event_);
            raw.on_event = call_function;
            raw.on_event_arg = on_event_.get();
        }
        detail::expect_ok(dibs_open(&rt_, &raw));
    }

    /* Opens with a configuration of dibs.h, whose pointers must be valid until the runtime is open. */
    explicit runtime(const dibs_config &how)
    {
        detail::expect_ok(dibs_open(&rt_, &how));
    }

    runtime(runtime &&other) noexcept : rt_(std::exchange(other.rt_, nullptr)), on_event_(std::move(other.on_event_))
    {
    }

    /* Closes what this runtime was first. */
    runtime &operator=(runtime &&other) noexcept
    {
        if (this != &other) {
            close();
            rt_ = std::exchange(other.rt_, nullptr);
            on_event_ = std::move(other.on_event_);
        }
        return *this;
    }

    runtime(const runtime &) = delete;
    runtime &operator=(const runtime &) = delete;

    ~runtime()
    {
        close();
    }

    /*
     * dibs_close: releases every hold of every thread, and blocks as long as that does. Must
     * not be called from the function of on_event. What mutexes of this runtime do
     * afterwards is what dibs_close says of later calls: a lock() throws errc::closed.
     * Does nothing the second time.
     */
    void close() noexcept
    {
        dibs_close(std::exchange(rt_, nullptr));
        on_event_.reset();
    }

    /* From now on waiting and later acquires throw errc::closed; does not block. See dibs_shutdown. */
    void shutdown() noexcept
    {
        dibs_shutdown(rt_);
    }

    /* Gives up every hold of the calling thread. Throws what dibs_unlock_all returns, after all were given up. */
    void unlock_all()
    {
        detail::expect_ok(dibs_unlock_all(rt_));
    }

    /* Asks the store who holds the lock of that name, in one round trip. Throws what dibs_query returns. */
    dibs_owner query(std::string_view name) const
    {
        dibs_owner owner;

        detail::expect_ok(dibs_query(rt_, detail::checked_name(name).c_str(), &owner));
        return owner;
    }

    /*
     * Asks the store who shares the lock of that name, in one round trip: the newest first, at
     * most DIBS_SHARERS_MAX. Throws what dibs_query_sharers returns.
     */
    std::vector<dibs_sharer> query_sharers(std::string_view name) const
    {
        std::vector<dibs_sharer> out(DIBS_SHARERS_MAX);
        std::size_t count = 0;

        detail::expect_ok(dibs_query_sharers(rt_, detail::checked_name(name).c_str(), out.data(), out.size(), &count));
        out.resize(count);
        return out;
    }

    /*
     * Takes the lock of that name from the holder with that token, or with "" from any
     * holder: see dibs_force_unlock. False if the holder has another token. Throws what
     * else dibs_force_unlock returns.
     */
    bool force_unlock(std::string_view name, std::string_view token = {})
    {
        const std::string owner = detail::without_nul("the token", token);
        const dibs_status status =
            dibs_force_unlock(rt_, detail::checked_name(name).c_str(), owner.empty() ? nullptr : owner.c_str());

        if (status != DIBS_NOT_HELD)
            detail::expect_ok(status);
        return status == DIBS_OK;
    }

    /* All zero where the runtime was closed. No I/O. */
    dibs_stats stats() const noexcept
    {
        dibs_stats out{};

        dibs_stats_get(rt_, &out);
        return out;
    }

    /* For the functions of dibs.h; remains this object's. nullptr after close, or when moved from. */
    dibs_runtime *get() const noexcept
    {
        return rt_;
    }

  private:
    static void call_function(const dibs_event *event, void *arg) noexcept
    {
        (*static_cast<event_function *>(arg))(*event);
    }

    dibs_runtime *rt_ = nullptr;
    std::unique_ptr<event_function> on_event_; /* at one address, which dibs has, for as long as the runtime is open */
};

/* -------------------------------------------------------------------- mutex */

/*
 * A lock of one name, which meets TimedLockable: for std::lock_guard, std::unique_lock,
 * std::scoped_lock and std::lock. For several locks at once dibs::lock() is better.
 *
 * A mutex holds nothing itself: two mutexes of one name and runtime are the same lock, a
 * thread's holds are counted for both together, and destroying one unlocks nothing. All
 * threads of a process may use one mutex, or each its own. A thread may lock it again; with
 * DIBS_NO_REENTRY in options the second lock throws errc::busy, and the second try_lock is
 * false. std::condition_variable_any does not fit: whoever waits would wait across
 * processes, and is woken in one.
 */
class mutex {
  public:
    /*
     * For the lock of that name in that runtime; no I/O. options are those of
     * dibs_lock_with. Throws errc::invalid for a name that is empty, longer than
     * DIBS_NAME_MAX, or contains a NUL.
     */
    mutex(const runtime &rt, std::string_view name, const dibs_lock_options &options = {})
        : rt_(rt.get()), name_(detail::checked_name(name)), options_(options)
    {
    }

    mutex(const runtime &rt, std::nullptr_t, const dibs_lock_options & = {}) = delete;
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    /* Waits for the lock. Throws what dibs_lock_with returns: the lock is then not acquired. */
    void lock()
    {
        detail::expect_ok(acquire(DIBS_WAIT_FOREVER));
    }

    /* One try. False if the lock is taken (DIBS_BUSY). Throws what else dibs_lock_with returns. */
    [[nodiscard]] bool try_lock()
    {
        return granted(acquire(0));
    }

    /* Waits for at most that time; false if the lock was not granted. Throws what else dibs_lock_with returns. */
    template <class Rep, class Period> [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
    {
        return granted(acquire(detail::wait_ms(time)));
    }

    /*
     * Waits until Clock shows that time; false if the lock was not granted. If the clock is
     * set back while the call waits, the call waits longer. If the clock is set forward, the
     * call notices that only when the time that was left at first is over. Throws what else
     * dibs_lock_with returns.
     */
    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time)
    {
        for (;;) {
            const detail::real_ms now = Clock::now().time_since_epoch();
            const std::int64_t left = detail::wait_ms(detail::real_ms(time.time_since_epoch()) - now);
            const dibs_status status = acquire(left);

            if (status != DIBS_TIMEOUT || Clock::now() >= time)
                return granted(status);
        }
    }

    /*
     * Takes one off the calling thread's hold count; the last one releases the lock, in one
     * round trip. Reports no loss: on_event tells, and check() told before.
     * dibs::guard::release() is for a caller who must know.
     *
     * The calling thread must hold the lock: a std::unique_lock that is moved to another
     * thread can't unlock there, and the lock stays held. Without NDEBUG such an unlock fails
     * an assertion, which ends the program. With NDEBUG it does nothing; it is counted in
     * dibs_stats.not_held, and on_event is told (DIBS_EVENT_NOT_HELD). To unlock after
     * runtime::close(), or what its parent locked in a forked child that has not used the
     * runtime, does nothing.
     */
    void unlock() noexcept
    {
        const dibs_status status = dibs_unlock(rt_, name_.c_str());

        assert((status != DIBS_NOT_HELD || !has_strays()) &&
               "this thread does not hold the lock: was its guard moved to another thread?");
        static_cast<void>(status);
    }

    /*
     * Throws errc::lost if the calling thread's lease has ended, and errc::not_held if the
     * thread does not hold the lock. No I/O: see dibs_check.
     */
    void check() const
    {
        detail::expect_ok(dibs_check(rt_, name_.c_str()));
    }

    /*
     * The fence of the calling thread's hold, for the resource that the lock protects; see
     * dibs_hold. Throws as check() does.
     */
    std::uint64_t fence() const
    {
        dibs_hold out;

        detail::expect_ok(dibs_hold_of(rt_, name_.c_str(), &out));
        return out.fence;
    }

    /* What the calling thread holds, even if the lease was lost (out.lost). Throws errc::not_held. */
    dibs_hold hold() const
    {
        dibs_hold out;
        const dibs_status status = dibs_hold_of(rt_, name_.c_str(), &out);

        if (status != DIBS_LOST)
            detail::expect_ok(status);
        return out;
    }

    /* By which others see the calling thread's hold: see dibs_token_of. No I/O. Throws as check() does. */
    std::string token() const
    {
        char out[192];

        detail::expect_ok(dibs_token_of(rt_, name_.c_str(), out));
        return out;
    }

    /*
     * Makes the lease end that time from now, rounded up to milliseconds. Throws what
     * dibs_extend returns; errc::invalid for less than 20 ms or more than a day.
     */
    void extend(detail::real_ms lease)
    {
        detail::expect_ok(dibs_extend(rt_, name_.c_str(), detail::field(lease)));
    }

    const std::string &name() const noexcept
    {
        return name_;
    }

  private:
    friend class guard;
    template <class... Rest> friend std::scoped_lock<mutex, mutex, Rest...> lock(mutex &, mutex &, Rest &...);

    dibs_status acquire(std::int64_t wait) noexcept
    {
        return dibs_lock_with(rt_, name_.c_str(), wait, &options_);
    }

    /* Nothing is counted where the runtime was closed, or for what a forked child's parent holds. */
    bool has_strays() const noexcept
    {
        dibs_stats stats;

        dibs_stats_get(rt_, &stats);
        return stats.not_held > 0;
    }

    static bool granted(dibs_status status)
    {
        if (status != DIBS_BUSY && status != DIBS_TIMEOUT)
            detail::expect_ok(status);
        return status == DIBS_OK;
    }

    dibs_runtime *const rt_; /* never freed by dibs, so valid even when the runtime was closed */
    const std::string name_;
    const dibs_lock_options options_;
};

/* --------------------------------------------------------------- shared locks */

/*
 * A read-write lock of one name: any number of readers, or one writer (DIBS_SHARED). It meets
 * the requirements of a SharedTimedMutex: for std::shared_lock, std::unique_lock and the other
 * guards of the standard library.
 *
 *   dibs::runtime store;
 *   dibs::shared_mutex prices(store, "prices");
 *   {
 *       std::unique_lock writer(prices);
 *   }
 *   prices.lock_shared();                       // or std::shared_lock, of <shared_mutex>
 *   prices.unlock_shared();
 *
 * Like a mutex, it holds nothing itself, and a thread's holds are counted: a reader may read
 * again; a writer may read or write again, and goes on holding the lock alone. A reader's
 * lock() throws errc::busy, and its try_lock() is false: waiting could only end in a deadlock.
 * A writer that waits is passed by no reader that comes later.
 */
class shared_mutex {
  public:
    /* As the constructor of mutex; options must not have a limit. */
    shared_mutex(const runtime &rt, std::string_view name, const dibs_lock_options &options = {})
        : alone_(rt, name, detail::with_flags(options, options.flags & ~std::uint32_t(DIBS_SHARED))),
          shared_(rt, name, detail::with_flags(options, options.flags | DIBS_SHARED))
    {
    }

    shared_mutex(const runtime &rt, std::nullptr_t, const dibs_lock_options & = {}) = delete;

    /* For the lock alone, as the functions of mutex. */
    void lock()
    {
        alone_.lock();
    }

    [[nodiscard]] bool try_lock()
    {
        return alone_.try_lock();
    }

    template <class Rep, class Period> [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
    {
        return alone_.try_lock_for(time);
    }

    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time)
    {
        return alone_.try_lock_until(time);
    }

    void unlock() noexcept
    {
        alone_.unlock();
    }

    /* To share the lock, as the functions of mutex. */
    void lock_shared()
    {
        shared_.lock();
    }

    [[nodiscard]] bool try_lock_shared()
    {
        return shared_.try_lock();
    }

    template <class Rep, class Period>
    [[nodiscard]] bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &time)
    {
        return shared_.try_lock_for(time);
    }

    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &time)
    {
        return shared_.try_lock_until(time);
    }

    void unlock_shared() noexcept
    {
        shared_.unlock();
    }

    /* Of the calling thread's hold, shared or not, as the functions of mutex. */
    void check() const
    {
        alone_.check();
    }

    std::uint64_t fence() const
    {
        return alone_.fence();
    }

    dibs_hold hold() const
    {
        return alone_.hold();
    }

    std::string token() const
    {
        return alone_.token();
    }

    void extend(detail::real_ms lease)
    {
        alone_.extend(lease);
    }

    const std::string &name() const noexcept
    {
        return alone_.name();
    }

  private:
    friend class guard;
    friend class shared_guard;

    mutex alone_, shared_; /* of one name */
};

/*
 * A semaphore of one name with a number of permits, shaped like std::counting_semaphore:
 * at most that many threads hold it at a time, in all processes (DIBS_SHARED with a limit). A
 * permit is a lease: it is renewed, and free again when its holder dies.
 *
 *   dibs::runtime store;
 *   dibs::semaphore workers(store, "workers", 3);
 *   workers.acquire();
 *   workers.release();
 *
 * Unlike a permit of the standard's semaphore, a permit belongs to the thread that acquired it:
 * only that thread can release it. A thread has one permit at a time; if it acquires again, its
 * hold is counted up, and needs as many releases. All who use a name must give the same number.
 */
class semaphore {
  public:
    /* As the constructor of mutex; permits is at least 1 and takes the place of options.limit. */
    semaphore(const runtime &rt, std::string_view name, std::uint32_t permits, const dibs_lock_options &options = {})
        : permit_(rt, name, limited(permits, options))
    {
    }

    semaphore(const runtime &rt, std::nullptr_t, std::uint32_t, const dibs_lock_options & = {}) = delete;

    /* As lock, try_lock, try_lock_for, try_lock_until and unlock of mutex. */
    void acquire()
    {
        permit_.lock();
    }

    [[nodiscard]] bool try_acquire()
    {
        return permit_.try_lock();
    }

    template <class Rep, class Period>
    [[nodiscard]] bool try_acquire_for(const std::chrono::duration<Rep, Period> &time)
    {
        return permit_.try_lock_for(time);
    }

    template <class Clock, class Duration>
    [[nodiscard]] bool try_acquire_until(const std::chrono::time_point<Clock, Duration> &time)
    {
        return permit_.try_lock_until(time);
    }

    void release() noexcept
    {
        permit_.unlock();
    }

    /* Of the calling thread's permit, as the functions of mutex. */
    void check() const
    {
        permit_.check();
    }

    dibs_hold hold() const
    {
        return permit_.hold();
    }

    std::string token() const
    {
        return permit_.token();
    }

    void extend(detail::real_ms lease)
    {
        permit_.extend(lease);
    }

    const std::string &name() const noexcept
    {
        return permit_.name();
    }

  private:
    friend class guard;

    static dibs_lock_options limited(std::uint32_t permits, const dibs_lock_options &options)
    {
        dibs_lock_options all = detail::with_flags(options, options.flags | DIBS_SHARED);

        if (permits == 0)
            detail::fail(errc::invalid, "a semaphore has at least one permit");
        all.limit = permits;
        return all;
    }

    mutex permit_;
};

/* -------------------------------------------------------------------- guard */

/*
 * Holds a mutex for a scope, as std::lock_guard does, and can tell whether the lock was
 * kept: end the scope with release(). In the same way it holds a shared_mutex alone, or a
 * permit of a semaphore; shared_guard shares a shared_mutex.
 *
 * A guard belongs to the thread that made it, cannot be copied or moved, and must not
 * outlive its mutex.
 */
class guard {
  public:
    /* Waits for the lock. Throws as mutex::lock() does. */
    explicit guard(mutex &m) : mutex_(&m)
    {
        m.lock();
    }

    explicit guard(shared_mutex &m) : guard(m.alone_)
    {
    }

    explicit guard(semaphore &s) : guard(s.permit_)
    {
    }

    /* Takes over one hold of the calling thread, such as one of try_lock_for(). */
    guard(mutex &m, std::adopt_lock_t) noexcept : mutex_(&m)
    {
    }

    guard(shared_mutex &m, std::adopt_lock_t) noexcept : mutex_(&m.alone_)
    {
    }

    guard(semaphore &s, std::adopt_lock_t) noexcept : mutex_(&s.permit_)
    {
    }

    guard(const guard &) = delete;
    guard &operator=(const guard &) = delete;

    /* Unlocks, unless release() did, and reports nothing. */
    ~guard()
    {
        if (mutex_)
            mutex_->unlock();
    }

    /*
     * Unlocks, and throws what dibs_unlock returns: errc::lost if the lease had ended, so
     * that another thread may have been inside as well. After any other error the lock was
     * kept until this call, and only its release is in doubt: dibs goes on with that in the
     * background. In every case the guard holds nothing afterwards, and all its functions
     * throw errc::not_held.
     */
    void release()
    {
        mutex &m = held();

        mutex_ = nullptr;
        detail::expect_ok(dibs_unlock(m.rt_, m.name_.c_str()));
    }

    /* As the functions of mutex. */
    void check() const
    {
        held().check();
    }

    std::uint64_t fence() const
    {
        return held().fence();
    }

    dibs_hold hold() const
    {
        return held().hold();
    }

    void extend(detail::real_ms lease)
    {
        held().extend(lease);
    }

  private:
    mutex &held() const
    {
        if (!mutex_)
            detail::fail(errc::not_held, "the guard was released before");
        return *mutex_;
    }

    mutex *mutex_; /* nullptr after release() */
};

/* Shares a shared_mutex for a scope; otherwise as guard. */
class shared_guard : public guard {
  public:
    explicit shared_guard(shared_mutex &m) : guard(m.shared_)
    {
    }

    shared_guard(shared_mutex &m, std::adopt_lock_t) noexcept : guard(m.shared_, std::adopt_lock)
    {
    }
};

/* ------------------------------------------------------- several locks at once */

/*
 * Waits for several locks. They are held until the result ends, so keep that in a variable:
 *
 *   dibs::runtime store;
 *   dibs::mutex alice(store, "account:alice"), bob(store, "account:bob");
 *   const auto both = dibs::lock(alice, bob);
 *
 * They are locked one after the other in the order of their names, so threads anywhere that
 * want some of the same locks by this function never wait for each other in a circle. (Equal
 * names of several runtimes have an order in each process only.)
 * (std::scoped_lock of several mutexes knows no order: it tries, gives back and tries again,
 * and each of these steps asks the store.) Throws as mutex::lock() does; what was locked
 * before is then unlocked. Takes mutexes only, which may be of several runtimes.
 */
template <class... Rest>
[[nodiscard]] std::scoped_lock<mutex, mutex, Rest...> lock(mutex &first, mutex &second, Rest &...rest)
{
    static_assert((std::is_same_v<Rest, mutex> && ...), "dibs::lock takes mutexes of dibs");
    std::array<mutex *, 2 + sizeof...(rest)> all{&first, &second, &rest...};
    std::array<std::unique_lock<mutex>, 2 + sizeof...(rest)> held;

    std::stable_sort(all.begin(), all.end(), [](const mutex *a, const mutex *b) {
        return a->name_ != b->name_ ? a->name_ < b->name_ : std::less<>()(a->rt_, b->rt_);
    });
    for (std::size_t i = 0; i < all.size(); i++)
        held[i] = std::unique_lock<mutex>(*all[i]);
    for (std::unique_lock<mutex> &one : held)
        one.release(); /* from here on nothing throws */
    return std::scoped_lock<mutex, mutex, Rest...>(std::adopt_lock, first, second, rest...);
}

/*
 * Holds the locks of several names for a scope, as dibs_lock_names does: all of them or none,
 * in one round trip to each server where they are free.
 *
 *   dibs::runtime store;
 *   const std::vector<std::string> accounts = {"account:alice", "account:bob"};
 *   dibs::lock_all both(store, accounts);
 *   ...
 *   both.release();                                // throws errc::lost if one was lost
 *
 * It belongs to the thread that made it, and can't be copied or moved.
 */
class lock_all {
  public:
    /*
     * Waits for the locks of all names: a range of what converts to std::string_view, at most
     * DIBS_NAMES_MAX, in any order. options are those of each lock. Throws what dibs_lock_names
     * returns; nothing of this call is held then.
     */
    template <class Names>
    lock_all(const runtime &rt, Names &&names, const dibs_lock_options &options = {}) : rt_(rt.get())
    {
        set(names);
        detail::expect_ok(acquire(DIBS_WAIT_FOREVER, options));
    }

    /* One try: owns_lock() tells whether all were free. Throws what else dibs_lock_names returns. */
    template <class Names, class Try, std::enable_if_t<std::is_same_v<Try, std::try_to_lock_t>, bool> = true>
    lock_all(const runtime &rt, Names &&names, Try, const dibs_lock_options &options = {}) : rt_(rt.get())
    {
        set(names);
        own_if_granted(acquire(0, options));
    }

    /* The same, but waits for at most that time. */
    template <class Names, class Rep, class Period>
    lock_all(const runtime &rt, Names &&names, const std::chrono::duration<Rep, Period> &time,
             const dibs_lock_options &options = {})
        : rt_(rt.get())
    {
        set(names);
        own_if_granted(acquire(detail::wait_ms(time), options));
    }

    lock_all(const lock_all &) = delete;
    lock_all &operator=(const lock_all &) = delete;

    /* Unlocks what is held, and reports nothing. */
    ~lock_all()
    {
        static_cast<void>(dibs_unlock_names(rt_, pointers_.data(), pointers_.size()));
    }

    /* Whether the locks were granted, and release() was not called. */
    bool owns_lock() const noexcept
    {
        return owns_;
    }

    explicit operator bool() const noexcept
    {
        return owns_;
    }

    /* Throws errc::lost if the lease of one has ended, and errc::not_held if none is held. No I/O: see dibs_check. */
    void check() const
    {
        if (!owns_)
            detail::fail(errc::not_held, "the locks were not granted, or were released before");
        for (const char *name : pointers_)
            detail::expect_ok(dibs_check(rt_, name));
    }

    /*
     * Unlocks all in one round trip to each server, and throws what dibs_unlock_names returns:
     * errc::lost if the lease of one had ended. Nothing is held afterwards, and a second call
     * does nothing.
     */
    void release()
    {
        const std::vector<const char *> held = std::exchange(pointers_, {});

        owns_ = false;
        detail::expect_ok(dibs_unlock_names(rt_, held.data(), held.size()));
    }

  private:
    template <class Names> void set(Names &names)
    {
        for (const auto &name : names)
            names_.push_back(detail::checked_name(name));
        for (const std::string &name : names_)
            pointers_.push_back(name.c_str());
    }

    dibs_status acquire(std::int64_t wait, const dibs_lock_options &options) noexcept
    {
        const dibs_status status = dibs_lock_names(rt_, pointers_.data(), pointers_.size(), wait, &options);

        owns_ = status == DIBS_OK;
        return status;
    }

    void own_if_granted(dibs_status status)
    {
        if (status != DIBS_BUSY && status != DIBS_TIMEOUT)
            detail::expect_ok(status);
        if (!owns_)
            pointers_.clear();
    }

    dibs_runtime *const rt_;
    bool owns_ = false;
    std::vector<std::string> names_;
    std::vector<const char *> pointers_; /* to names_; empty while nothing is held */
};

} // namespace dibs

#include "dibs_task.hpp"

#endif
