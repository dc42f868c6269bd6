import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * One JVM for all that is written in Java, since starting one takes seconds. It prints the port of the loopback address that
 * it listens on, and goes when its standard input ends. Each connection runs one program: a first line
 *
 * <pre>[2>&1] CLASS ARGUMENT…</pre>
 *
 * names it; then the connection is the program's standard input and output (and error, with 2>&1; otherwise that is the
 * host's) until it returns or exits, and a line "exit STATUS" ends it. What belongs to a program is found by its threads:
 * those that it starts inherit its streams.
 */
public class Host {
    static final InheritableThreadLocal<Program> current = new InheritableThreadLocal<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out, err = System.err;
        System.setIn(new In());
        System.setOut(new PrintStream(new Out(err, false), true));
        System.setErr(new PrintStream(new Out(err, true), true));
        Exit.Procedure exit = (status, message) -> {
            Program p = current.get();
            if (p == null) Runtime.getRuntime().halt(status);
            p.exited.complete(status);
            while (true) LockSupport.park(); // an exception would be caught by some tools
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        InputStream parent = new java.io.FileInputStream(java.io.FileDescriptor.in);
        start("parent", () -> {
            while (parent.read() >= 0) { }
            Runtime.getRuntime().halt(0); // whatever threads the programs have left
        });
        try (ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            out.println(listener.getLocalPort());
            while (true) {
                Socket s = listener.accept();
                start("program", () -> serve(s));
            }
        }
    }

    interface Body { void run() throws Exception; }

    static void start(String name, Body body) {
        Thread t = new Thread(() -> {
            try {
                body.run();
            } catch (Exception e) {
                e.printStackTrace();
            }
        }, name);
        t.setDaemon(true);
        t.start();
    }

    static void serve(Socket s) throws IOException {
        try (s) {
            s.setTcpNoDelay(true);
            Program p = new Program(new BufferedInputStream(s.getInputStream()), s.getOutputStream());
            current.set(p);
            ByteArrayOutputStream line = new ByteArrayOutputStream();
            for (int c; (c = p.in.read()) >= 0 && c != '\n'; ) line.write(c);
            String[] words = line.toString(StandardCharsets.UTF_8).split(" ");
            p.merged = words[0].equals("2>&1");
            int first = p.merged ? 1 : 0;
            start(words[first], () -> p.exited.complete(status(words[first], Arrays.copyOfRange(words, first + 1, words.length))));
            String end = "\nexit " + p.exited.join() + "\n";
            synchronized (System.out) {
                s.getOutputStream().write(end.getBytes(StandardCharsets.UTF_8));
            }
        }
    }

    static int status(String name, String[] args) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args);
            return 0;
        } catch (Throwable e) {
            e.printStackTrace();
            return 1;
        }
    }

    static class Program {
        final InputStream in;
        final OutputStream out;
        final CompletableFuture<Integer> exited = new CompletableFuture<>();
        volatile boolean merged; // standard error goes where standard output does

        Program(InputStream in, OutputStream out) {
            this.in = in;
            this.out = out;
        }
    }

    static class In extends InputStream {
        @Override public int read() throws IOException { return current.get().in.read(); }

        @Override public int read(byte[] b, int off, int len) throws IOException { return current.get().in.read(b, off, len); }
    }

    static class Out extends OutputStream {
        final OutputStream rest; // takes what belongs to no program
        final boolean error;

        Out(OutputStream rest, boolean error) {
            this.rest = rest;
            this.error = error;
        }

        @Override public void write(int b) throws IOException { write(new byte[] {(byte) b}, 0, 1); }

        @Override public void write(byte[] b, int off, int len) throws IOException {
            Program p = current.get();
            OutputStream to = p == null || error && !p.merged ? rest : p.out;
            try {
                to.write(b, off, len);
            } catch (IOException e) {
                rest.write(b, off, len); // the program has ended, and left a thread
            }
        }
    }
}
