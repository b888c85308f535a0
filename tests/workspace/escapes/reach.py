"""Attempts to reach others: by the network, by sockets, by what processes share."""

from .attempt import Attempt, shell

PIPES = "named pipes"
SHARED_FILES = "shared memory in `/dev/shm`"
SHARED_OBJECTS = "System V shared memory, semaphores and queues"

REACH = [
    shell("connection", 'echo x > "/dev/tcp/127.0.0.1/$TCP"'),
    shell("datagram", 'echo x > "/dev/udp/127.0.0.1/$UDP"'),
    Attempt(
        name="connection over version 6",
        script="""
one = socket.socket(socket.AF_INET6)
one.connect(("::ffff:127.0.0.1", int(os.environ["TCP"])))
one.send(b"x")
""",
    ),
    Attempt(
        name="connection by several paths",
        script="""
one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
one.connect(("127.0.0.1", int(os.environ["TCP"])))
one.send(b"x")
""",
    ),
    Attempt(
        name="connection with its first data",
        script="""
one = socket.socket()
one.sendto(b"x", 0x20000000, ("127.0.0.1", int(os.environ["TCP"])))
""",
    ),
    Attempt(
        name="datagram with a message",
        script="""
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.sendmsg([b"x"], [], 0, ("127.0.0.1", int(os.environ["UDP"])))
""",
    ),
    Attempt(
        name="raw packet",
        script="""
one = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
head = struct.pack("!HHHH", 9, int(os.environ["UDP"]), 9, 0)
one.sendto(head + b"x", ("127.0.0.1", 0))
""",
        control=("root",),
    ),
    Attempt(
        name="packet on a device",
        script="""
one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
one.bind(("lo", 0))
escaped(True)
""",
        control=("root",),
    ),
    Attempt(
        name="socket of the virtual machine",
        script="escaped(socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))",
    ),
    Attempt(
        name="cipher of the kernel",
        script="escaped(socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET))",
        control=(),
    ),
    Attempt(
        name="socket by old numbers",
        script="""
if X86:
    code = bytes.fromhex("53b867010000bb02000000b90200000031d2cd805bc3")
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(code)
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    number = ctypes.CFUNCTYPE(ctypes.c_int)(at)()
    one = socket.socket(fileno=number)
    one.sendto(b"x", ("127.0.0.1", int(os.environ["UDP"])))
""",
        control=(),
    ),
    Attempt(
        name="socket by numbers of x32",
        script="""
number = call(0x40000000 | 41, 2, 2, 0)
one = socket.socket(fileno=number)
one.sendto(b"x", ("127.0.0.1", int(os.environ["UDP"])))
""",
        control=(),
    ),
    Attempt(
        name="ring of the kernel",
        script="escaped(call(425, 4, ctypes.create_string_buffer(120)) >= 0)",
        control=(),
    ),
    Attempt(
        name="server that others reach",
        script="""
one = socket.create_server(("127.0.0.1", 0))
print("PORT", one.getsockname()[1], flush=True)
escaped(os.environ["NETWORK"] == os.readlink("/proc/self/ns/net"))
""",
    ),
    Attempt(
        name="socket without a path",
        script="""
one = socket.socket(socket.AF_UNIX)
one.connect("\\0" + os.environ["MARK"])
one.send(b"x")
""",
    ),
    Attempt(
        name="socket with a path",
        script="""
one = socket.socket(socket.AF_UNIX)
one.connect(OUT + "/socket")
one.send(b"x")
""",
    ),
    Attempt(
        name="socket that a program outside made a link to",
        script="""
os.symlink(OUT + "/socket", "link")
one = socket.socket(socket.AF_UNIX)
one.connect("link")
one.send(b"x")
""",
    ),
    shell("pipe with a path", 'echo x > "$OUT/pipe"', PIPES, "bwrap"),
    Attempt(
        name="socket in /run/user",
        script="""
one = socket.socket(socket.AF_UNIX)
one.connect(os.environ["SERVICE"])
one.send(b"x")
""",
        control=("root",),
    ),
    Attempt(
        name="shared memory with a name",
        script="open('/dev/shm/' + os.environ['MARK'], 'r+').write('X')",
        gap=SHARED_FILES,
        open_in=("landlock",),
    ),
    Attempt(
        name="shared memory of System V",
        script="""
libc.shmat.restype = ctypes.c_void_p
at = libc.shmat(int(os.environ["SHM"]), None, 0)
if at != 2 ** 64 - 1:
    ctypes.memset(at, 88, 1)
""",
        gap=SHARED_OBJECTS,
        open_in=("landlock",),
    ),
    Attempt(
        name="queue of System V",
        script="libc.msgsnd(int(os.environ['QUEUE']), struct.pack('=q8s', 1, b'x'), 8, 0o4000)",
        gap=SHARED_OBJECTS,
        open_in=("landlock",),
    ),
    Attempt(
        name="queue with a name",
        script="""
queue = call(240 if X86 else 180, os.environ["MARK"].encode(), os.O_WRONLY, 0, 0)
escaped(queue >= 0)
""",
    ),
    Attempt(
        name="key",
        script="""
add = 248 if X86 else 217
escaped(call(add, b"user", b"batten", b"x", 1, -3) > 0)
""",
    ),
    Attempt(
        name="terminal of another program",
        script="""
file = os.open(os.environ["TERMINAL"], os.O_WRONLY | os.O_NOCTTY)
os.write(file, b"x")
""",
        gap="the user's other terminals",
        open_in=("landlock",),
    ),
]
