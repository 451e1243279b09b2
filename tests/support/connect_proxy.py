"""A company's proxy for tests: it takes CONNECT alone, and passes it to the one host that it knows."""

import asyncio
import contextlib
import threading


class ConnectProxy:
    """A proxy on this machine, in a thread.

    Args:
        hosts: ``host:port`` as a client names it -> port of this machine; all else is refused with 403.
    """

    def __init__(self, hosts):
        self.hosts, self.asked, self.refused = hosts, [], []
        self.bytes = [0, 0]  # from clients, and to them
        self.port = 0

    async def _serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        verb, target, _ = head.split(" ", 2)
        if verb != "CONNECT" or target not in self.hosts:
            self.refused.append((verb, target))
            writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            writer.close()
            return
        self.asked.append(target)
        inner_reader, inner = await asyncio.open_connection("127.0.0.1", self.hosts[target])
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(self._pump(reader, inner, 0), self._pump(inner_reader, writer, 1))

    async def _pump(self, source, sink, way):
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await source.read(65536):
                self.bytes[way] += len(data)
                sink.write(data)
                await sink.drain()
        sink.close()

    def __enter__(self):
        started = threading.Event()

        async def serve():
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            self._end, self._loop = asyncio.Event(), asyncio.get_running_loop()
            started.set()
            await self._end.wait()
            server.close()

        self._thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
        self._thread.start()
        assert started.wait(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
