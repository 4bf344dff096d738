"""The judge's file, as judge.h lays it out: made here, written by the workers, read here."""

import mmap
import struct
from typing import NamedTuple

MAGIC = 0x6A75646765303033
HEAD_WORDS = 512
HEAD_PHASE = 6
HEAD_LEASE = 7
HEAD_STRETCHES = 8
HEAD_QUIT = 9
HEAD_BURST = HEAD_QUIT + 256
HEAD_SHARED = HEAD_BURST + 5
HEAD_KEEP = HEAD_SHARED + 1
HEAD_RETAKEN = HEAD_KEEP + 1
BURST_NONE, BURST_TAKING, BURST_ENDING, BURST_ENDED = range(4)
SLOT_WORDS = 4
NONE, ASKING, HELD, LEAVING, DONE = range(5)
FAIR, FIXED, SHARED = 1, 2, 8
LIMIT_SHIFT = 8

STATUS = ("OK BUSY TIMEOUT NOT_HELD LOST UNAVAILABLE DENIED STORE_ERROR INVALID NO_MEMORY CLOSED OVERFLOW "
          "CANCELLED").split()
OK, BUSY, TIMEOUT, NOT_HELD, LOST, UNAVAILABLE, DENIED, STORE_ERROR = range(8)
CLOSED = STATUS.index("CLOSED")
CANCELLED = STATUS.index("CANCELLED")


class Hold(NamedTuple):
    """One record; the fields are explained in judge.h. slot and died are the rig's."""

    state: int
    phase: int
    name: int
    flags: int
    lease_ms: int
    wait_ms: int
    status: int
    unlock_status: int
    asked: int
    returned: int
    fence: int
    first_ok_end: int
    last_ok: int
    told_lost: int
    left: int
    left_end: int
    accepted: int
    rejected: int
    first_accept_end: int
    last_accept: int
    ok_after_rejected: int
    odd: int
    extended_ms: int
    sure_until: int
    slot: int = -1
    died: int = 0  # when its worker was killed, or found dead, if it was before the record was done


RECORD = struct.Struct("=5Qq18Q")
RECORD_WORDS = RECORD.size // 8


class Burst(NamedTuple):
    """What a process that let go of many locks at once wrote of it; see judge.h."""

    state: int
    taken: int
    ending: int
    ended: int
    at_risk: int


class Judge:
    def __init__(self, path, phases, names, processes, threads, capacity=4096):
        self.path, self.names, self.threads, self.capacity = path, names, threads, capacity
        self.slots = processes * threads
        self.slot_words = SLOT_WORDS + capacity * RECORD_WORDS
        self.first_slot = HEAD_WORDS + phases * names
        with open(path, "wb") as file:
            file.truncate(8 * (self.first_slot + self.slots * self.slot_words))
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.words = memoryview(self.map).cast("Q")
        self.words[0:6] = memoryview(struct.pack("=6Q", MAGIC, phases, names, processes, threads, capacity)).cast("Q")

    def set_phase(self, phase, lease_ms=0, stretches=0):
        if lease_ms:
            self.words[HEAD_LEASE] = lease_ms
            self.words[HEAD_STRETCHES] = stretches
        self.words[HEAD_PHASE] = phase

    def set_quit(self, process, quit_now):
        self.words[HEAD_QUIT + process] = 1 if quit_now else 0

    def clear_burst(self):
        for i in range(len(Burst._fields)):
            self.words[HEAD_BURST + i] = 0

    def burst(self):
        return Burst(*self.words[HEAD_BURST : HEAD_BURST + len(Burst._fields)])

    def set_shared(self, percent):
        self.words[HEAD_SHARED] = percent

    def set_keep(self, keep_ms):
        self.words[HEAD_KEEP] = keep_ms

    def retaken(self):
        return self.words[HEAD_RETAKEN]

    def _slot(self, slot):
        return self.first_slot + slot * self.slot_words

    def slot_phase(self, slot):
        return self.words[self._slot(slot) + 2]

    def beats(self, process):
        first = process * self.threads
        return sum(self.words[self._slot(slot) + 3] for slot in range(first, first + self.threads))

    def clear_slot_phases(self, process):
        for slot in range(process * self.threads, (process + 1) * self.threads):
            self.words[self._slot(slot) + 2] = 0

    def _read(self, slot, index, died):
        at = 8 * (self._slot(slot) + SLOT_WORDS + index % self.capacity * RECORD_WORDS)
        return Hold(*RECORD.unpack_from(self.map, at), slot=slot, died=died)

    def _take(self, slot, died):
        base = self._slot(slot)
        head, tail = self.words[base], self.words[base + 1]
        taken = []
        while tail < head:
            hold = self._read(slot, tail, 0)
            if hold.state != DONE:
                if not died:
                    break
                hold = hold._replace(died=died)
            taken.append(hold)
            tail += 1
        self.words[base + 1] = tail
        return taken

    def take(self):
        """The records done since the last time."""
        return [hold for slot in range(self.slots) for hold in self._take(slot, 0)]

    def take_dead(self, process, died):
        """All records of a worker that has ended, done or not."""
        slots = range(process * self.threads, (process + 1) * self.threads)
        return [hold for slot in slots for hold in self._take(slot, died)]

    def open_records(self, process=None):
        """What is under way now, in one worker or in all."""
        first, end = (0, self.slots) if process is None else (process * self.threads, (process + 1) * self.threads)
        records = []
        for slot in range(first, end):
            base = self._slot(slot)
            records += [self._read(slot, i, 0) for i in range(self.words[base + 1], self.words[base])]
        return [hold for hold in records if hold.state != DONE]
