import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Apache's command line tools in one JVM, since starting one takes a second: each line of standard input is a class
 * and its arguments; on standard output follow what it prints and a line "exit STATUS".
 */
public class Tools {
    static volatile CompletableFuture<Integer> exited;

    public static void main(String[] args) throws Exception {
        System.setErr(System.out);
        Exit.Procedure exit = (status, message) -> {
            exited.complete(status);
            while (true) LockSupport.park(); // an exception would be caught by some tools
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            exited = new CompletableFuture<>();
            Thread tool = new Thread(() -> run(words));
            tool.setDaemon(true);
            tool.start();
            System.out.print("\nexit " + exited.get() + "\n");
            System.out.flush();
        }
        Runtime.getRuntime().halt(0); // whatever threads the tools have left
    }

    static void run(String[] words) {
        try {
            Class<?> tool = Class.forName("org.apache.kafka.tools." + words[0]);
            tool.getMethod("main", String[].class).invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            exited.complete(0);
        } catch (Throwable e) {
            e.printStackTrace();
            exited.complete(1);
        }
    }
}
