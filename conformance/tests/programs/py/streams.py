"""asyncio streams: an echo server, and a client with many streams at once, each checking its own bytes."""

import asyncio
import os
import sys


async def serve(port, streams, host="127.0.0.1"):
    done = asyncio.Event()
    ended = 0

    async def echo(reader, writer):
        nonlocal ended
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        ended += 1
        if ended == streams:
            done.set()

    server = await asyncio.start_server(echo, host, port)
    async with server:
        await done.wait()


async def stream(host, port, size):
    reader, writer = await asyncio.open_connection(host, port)
    data = os.urandom(size)

    async def send():
        for at in range(0, size, 10_007):
            writer.write(data[at : at + 10_007])
            await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    assert await reader.read(-1) == data, "other bytes came back"
    await sending
    writer.close()
    await writer.wait_closed()


async def talk(port, streams, size, host="127.0.0.1"):
    await asyncio.gather(*(stream(host, port, size) for _ in range(streams)))
    print("equal")


if __name__ == "__main__":
    call, *args = sys.argv[1:]
    asyncio.run(globals()[call](*(int(a) if a.isdigit() else a for a in args)))
