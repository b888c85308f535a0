"""Attempts on processes outside: to signal, change, read or outlive them."""

from .attempt import Attempt, shell

PRIORITY = "priority and processors"

PROCESSES = [
    shell("signal", 'kill -9 "$VICTIM"'),
    shell("stop", 'kill -STOP "$VICTIM"'),
    shell("signal of the group", 'kill -9 -- "-$VICTIM"'),
    Attempt(name="signal to all", script="kill -9 -1", shell=True, users=("ordinary",), control=()),
    shell("kill by name", 'pkill -9 -f "$MARK-victim"'),
    Attempt(name="stop Batten", script='kill -STOP "$US"', shell=True, control=()),
    shell("environment", 'tr "\\0" "\\n" < "/proc/$US/environ"'),
    Attempt(
        name="environment of the parent",
        script='tr "\\0" "\\n" < "/proc/$PPID/environ"',
        shell=True,
        control=(),
    ),
    shell(
        "what outlives us: session of its own",
        'setsid -f bash -c "exec sleep 60" < /dev/null > /dev/null 2>&1',
        control=(),
    ),
    shell(
        "what outlives us: ignores signals",
        '(trap "" TERM HUP INT; bash -c "exec sleep 60") < /dev/null > /dev/null 2>&1 &',
        control=(),
    ),
    shell(
        "what outlives us: kills its parents",
        'setsid -f bash -c "kill -9 $PPID; exec sleep 60" < /dev/null > /dev/null 2>&1; sleep 0.3',
        control=(),
    ),
    Attempt(
        name="what outlives us: kills all above, and forks",
        script="""
def above(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
chain, pid = [], os.getpid()
while (pid := above(pid)) > 1 and pid != US:
    chain.append(pid)
if os.fork() == 0:
    os.setsid()
    for one in reversed(chain):
        try:
            os.kill(one, 9)
        except OSError:
            pass
    for _ in range(50):
        if os.fork():
            os._exit(0)
    os.execvp("bash", ["bash", "-c", "exec sleep 60"])
time.sleep(0.5)
""",
    ),
    Attempt(
        name="signal by handle",
        script="signal.pidfd_send_signal(os.pidfd_open(VICTIM), signal.SIGKILL)",
    ),
    Attempt(
        name="signal with a value",
        script="call(129 if X86 else 138, VICTIM, 9, struct.pack('=iii', 9, 0, -1).ljust(128))",
    ),
    Attempt(
        name="signal to a thread",
        script="call(234 if X86 else 131, VICTIM, VICTIM, 9)",
    ),
    Attempt(
        name="signal by a file's owner",
        script="""
one, other = socket.socketpair()
fcntl.fcntl(one, 10, 9)
fcntl.fcntl(one, fcntl.F_SETOWN, VICTIM)
fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
other.send(b"x")
time.sleep(0.2)
""",
    ),
    Attempt(
        name="trace",
        script="escaped(libc.ptrace(16, VICTIM, None, None) == 0); time.sleep(0.2)",
    ),
    Attempt(
        name="trace without a stop",
        script="escaped(libc.ptrace(0x4206, VICTIM, None, None) == 0)",
    ),
    Attempt(
        name="read memory",
        script="""
at = next(line for line in open(f"/proc/{VICTIM}/maps") if "rw-p" in line).split("-")[0]
with open(f"/proc/{VICTIM}/mem", "rb") as memory:
    memory.seek(int(at, 16))
    escaped(memory.read(8))
""",
    ),
    Attempt(
        name="read memory by call",
        script="""
at = next(line for line in open(f"/proc/{VICTIM}/maps") if "rw-p" in line).split("-")[0]
held = ctypes.create_string_buffer(8)
ours = struct.pack("=QQ", ctypes.addressof(held), 8)
theirs = struct.pack("=QQ", int(at, 16), 8)
escaped(call(310 if X86 else 270, VICTIM, ours, 1, theirs, 1, 0) > 0)
""",
    ),
    Attempt(
        name="take a descriptor",
        script="escaped(call(438, os.pidfd_open(VICTIM), 0, 0) >= 0)",
    ),
    Attempt(
        name="take a descriptor of Batten",
        script="escaped(call(438, os.pidfd_open(US), 0, 0) >= 0)",
    ),
    Attempt(
        name="descriptors of the parent",
        script="escaped([os.readlink(f'/proc/{os.getppid()}/fd/{one}') for one in range(3)])",
        control=("root",),
    ),
    Attempt(
        name="take a descriptor of the parent",
        script="escaped(call(438, os.pidfd_open(os.getppid()), 0, 0) >= 0)",
        control=(),
    ),
    Attempt(
        name="descriptors that were left open",
        script="""
own = os.open("/proc/self/fd", os.O_RDONLY)
left = [one for one in map(int, os.listdir(own)) if one > 2 and one != own]
escaped([one for one in left if os.path.exists(f"/proc/self/fd/{one}")])
""",
        control=(),
    ),
    Attempt(
        name="limits",
        script="""
import resource
resource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (3, 3))
""",
    ),
    Attempt(
        name="priority",
        script="os.setpriority(os.PRIO_PROCESS, VICTIM, 15)",
        gap=PRIORITY,
        open_in=("landlock",),
    ),
    Attempt(
        name="priority of all",
        script="os.setpriority(os.PRIO_USER, os.getuid(), 3)",
        users=("ordinary",),
        gap=PRIORITY,
        open_in=("landlock",),
    ),
    Attempt(
        name="processors",
        script="os.sched_setaffinity(VICTIM, {min(os.sched_getaffinity(0))})",
        gap=PRIORITY,
        open_in=("landlock",),
    ),
    Attempt(
        name="scheduling",
        script="os.sched_setscheduler(VICTIM, os.SCHED_IDLE, os.sched_param(0))",
        gap=PRIORITY,
        open_in=("landlock",),
    ),
    Attempt(
        name="priority of input and output",
        script="call(251 if X86 else 30, 1, VICTIM, 3 << 13)",
        gap=PRIORITY,
        open_in=("landlock",),
    ),
    Attempt(
        name="who dies without memory",
        script="open(f'/proc/{VICTIM}/oom_score_adj', 'w').write('900')",
    ),
    Attempt(
        name="memory of the parent",
        script="""
with open(f"/proc/{os.getppid()}/maps") as maps:
    at = next(line for line in maps if "rw-p" in line).split("-")[0]
with open(f"/proc/{os.getppid()}/mem", "r+b") as memory:
    memory.seek(int(at, 16))
    escaped(memory.read(8))
""",
        control=("root",),
    ),
    Attempt(
        name="namespaces of another process",
        script="""
for name in ("mnt", "pid", "net", "ipc", "user"):
    for pid in (1, VICTIM, US):
        try:
            own = os.readlink(f"/proc/self/ns/{name}")
            other = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
            if os.readlink(f"/proc/self/fd/{other}") != own:
                escaped(libc.setns(other, 0) == 0)
        except OSError:
            pass
open(OUT + "/new", "w").close()
""",
    ),
    Attempt(
        name="trace the first process",
        script="""
for pid in (1, os.getppid()):
    for request in (16, 0x4206):
        escaped(call(101 if X86 else 117, request, pid, 0, 0) == 0)
""",
        control=(),
    ),
    Attempt(
        name="memory of the first process",
        script="""
held = ctypes.create_string_buffer(8)
ours = struct.pack("=QQ", ctypes.addressof(held), 8)
for pid in (1, os.getppid()):
    for number in (310, 311) if X86 else (270, 271):
        theirs = struct.pack("=QQ", 0x400000, 8)
        failed = call(number, pid, ours, 1, theirs, 1, 0) < 0
        escaped(not failed or ctypes.get_errno() == 14)
    for name in ("mem", "environ", "maps", "auxv"):
        try:
            escaped(open(f"/proc/{pid}/{name}", "rb").read(1))
        except OSError:
            pass
""",
        control=(),
    ),
    Attempt(
        name="descriptors of the first process",
        script="""
for pid in (1, os.getppid()):
    for number in range(32):
        escaped(call(438, os.pidfd_open(pid), number, 0) >= 0)
""",
        control=(),
    ),
]
