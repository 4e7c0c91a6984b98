import java.io.DataInputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import java.util.Random;

/**
 * A peer of java.net's blocking sockets and of java.nio's channels.
 *
 * <p>serve PORT COUNT: echoes so many streams, a thread each, then ends. talk HOST PORT SIZE: sends so many bytes by either kind of socket, and compares what returns.
 */
public final class Peer {
    public static void main(String[] words) throws Exception {
        if (words[0].equals("serve")) {
            serve(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
        } else {
            talk(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
        }
    }

    private static void serve(int port, int count) throws Exception {
        Thread[] threads = new Thread[count];
        try (ServerSocket listener = new ServerSocket(port)) {
            for (int at = 0; at < count; at++) {
                Socket socket = listener.accept();
                threads[at] = new Thread(() -> echo(socket));
                threads[at].start();
            }
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void echo(Socket socket) {
        try (socket) {
            socket.getInputStream().transferTo(socket.getOutputStream());
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void talk(String host, int port, int size) throws Exception {
        byte[] sent = new byte[size];
        new Random(1).nextBytes(sent);
        byte[] blocking = new byte[size];
        try (Socket socket = new Socket(InetAddress.getByName(host), port)) {
            Thread writer = new Thread(() -> write(socket, sent));
            writer.start();
            new DataInputStream(socket.getInputStream()).readFully(blocking);
            writer.join();
        }
        ByteBuffer channel = ByteBuffer.allocate(size);
        try (SocketChannel socket = SocketChannel.open(new InetSocketAddress(host, port))) {
            Thread writer = new Thread(() -> write(socket, sent));
            writer.start();
            while (channel.hasRemaining() && socket.read(channel) >= 0) {}
            writer.join();
        }
        System.out.println(Arrays.equals(sent, blocking) && Arrays.equals(sent, channel.array()) ? "equal" : "other bytes");
    }

    private static void write(Socket socket, byte[] bytes) {
        try {
            socket.getOutputStream().write(bytes);
            socket.shutdownOutput();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void write(SocketChannel socket, byte[] bytes) {
        try {
            ByteBuffer left = ByteBuffer.wrap(bytes);
            while (left.hasRemaining()) {
                socket.write(left);
            }
            socket.shutdownOutput();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
