"""The libraries that are compared, and how they are installed."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


class Peer:
    """A library: what installs it, what runs it, and where in its manifest the version stands.

    nested: its locks are reentrant. renews: it renews them by itself. asks_ms: the longest time between two tries of a
    waiter that nobody notifies; 0: it is notified.
    """

    def __init__(self, name, language, folder, manifest, version, needs, commands, program,
                 nested=False, renews=True, asks_ms=0):
        self.name, self.language, self.folder, self.needs = name, language, folder, needs
        self.commands, self.program = commands, program
        self.nested, self.renews, self.asks_ms = nested, renews, asks_ms
        self.version = ".".join(re.findall(version, (HERE / folder / manifest).read_text(), re.M))


def go_peer(name, module, **traits):
    program = name.split("/")[-1]
    return Peer(name, "Go", "go", "go.mod", rf"^\s*{module} v(\S+)", ["go"],
                [["go", "build", "-o", "bin/", "./redsync", "./redislock", "./rueidislock"]], [f"bin/{program}"],
                **traits)


PEERS = [
    Peer("dibs", "C", "dibs", "../../../include/dibs.h", r"^#define DIBS_VERSION_\w+ (\d+)", [], [], [], nested=True),
    Peer("Redisson", "Java", "redisson", "pom.xml", r"<artifactId>redisson</artifactId>\s*<version>(.*)</version>",
         ["java", "mvn"], [["mvn", "-q", "-B", "compile", "dependency:copy-dependencies"]],
         ["java", "-cp", "target/classes:target/dependency/*", "Main"], nested=True),
    Peer("rslock", "Rust", "rslock", "Cargo.lock", r'^name = "rslock"\nversion = "(.*)"', ["cargo"],
         [["cargo", "build", "-q", "--release", "--locked"]], ["target/release/rslock-peer"],
         asks_ms=200),
    go_peer("rueidislock", "github.com/redis/rueidis"),
    go_peer("redsync", "github.com/go-redsync/redsync/v4", renews=False, asks_ms=250),
    go_peer("bsm/redislock", "github.com/bsm/redislock", renews=False, asks_ms=100),
    Peer("node-redlock", "JavaScript", "node-redlock", "package.json", r'"redlock": "(.*)"', ["node", "npm"],
         [["npm", "ci", "--no-audit", "--no-fund"]], ["node", "main.mjs"], asks_ms=400),
    Peer("redis-py", "Python", "redis-py", "requirements.txt", r"^redis.*==(.*)", ["python3"],
         [["python3", "-m", "venv", "."], ["bin/pip", "install", "-q", "-r", "requirements.txt"]],
         ["bin/python3", "main.py"], renews=False, asks_ms=100),
]


def fingerprint(peer):
    """Of the peer's folder: what was installed for another one is installed again."""
    digest = hashlib.sha256()
    for path in sorted((HERE / peer.folder).rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(HERE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def install(peer, build):
    """Copies the peer's folder to build/peers, and installs it there. Returns what is missing, or None."""
    if not peer.commands:
        return None if (build / "peers" / "dibs").exists() else 'only "make peers" builds it'
    missing = [need for need in peer.needs if not shutil.which(need)]
    if missing:
        return f"{' and '.join(missing)} is not installed"
    folder = build / "peers" / peer.folder
    stamp = folder / ".installed"
    if stamp.exists() and stamp.read_text() == fingerprint(peer):
        return None
    print(f"installing {peer.name} {peer.version}", file=sys.stderr)
    shutil.copytree(HERE / peer.folder, folder, dirs_exist_ok=True)
    for command in peer.commands:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env={**os.environ, "GOTOOLCHAIN": "local"})
        if done.returncode != 0:
            lines = done.stdout.strip().splitlines() or ["no output"]
            return f"{' '.join(command)} failed: {lines[-1]}"
    stamp.write_text(fingerprint(peer))
    return None
