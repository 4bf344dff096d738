"""redis-py's own Lock, by remote control: the other half of interop_test.

    redis_py_lock.py SOCKET

Reads a command a line, answers each with a line:

    acquire KEY SECONDS WAIT_SECONDS    True or False (WAIT_SECONDS 0: one try)
    release KEY                         ok, or the name of the exception
    extend KEY SECONDS                  ok, or the name of the exception
    owned KEY                           True or False
    token KEY                           the token it believes in
"""
import sys

import redis


def main():
    client = redis.Redis(unix_socket_path=sys.argv[1])
    locks = {}
    for line in sys.stdin:
        command, key, *rest = line.split()
        try:
            if command == "acquire":
                wait = float(rest[1])
                lock = locks[key] = client.lock(key, timeout=float(rest[0]), sleep=0.01)
                answer = lock.acquire(blocking=wait > 0, blocking_timeout=wait or None)
            elif command == "release":
                locks[key].release()
                answer = "ok"
            elif command == "extend":
                locks[key].extend(float(rest[0]))
                answer = "ok"
            elif command == "owned":
                answer = locks[key].owned()
            else:
                answer = locks[key].local.token.decode()
        except redis.exceptions.LockError as error:
            answer = type(error).__name__
        print(answer, flush=True)


main()
