import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.cli.ConnectDistributed;
import org.apache.kafka.connect.runtime.Connect;

/** A worker of Kafka Connect on the settings in a file, until its standard input ends: ConnectDistributed in a JVM that goes on. */
public class Worker {
    public static void main(String[] args) throws Exception {
        Connect<?> connect = new ConnectDistributed(args).startConnect(Utils.propsToStringMap(Utils.loadProps(args[0])));
        while (System.in.read() >= 0) { }
        connect.stop();
        connect.awaitStop();
    }
}
