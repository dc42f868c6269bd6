import java.util.Properties;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;

/** An Apache Kafka node on the settings in a file, until its standard input ends: kafka.Kafka in a JVM that goes on. */
public class Broker {
    public static void main(String[] args) throws Exception {
        Properties p = Utils.loadProps(args[0]);
        KafkaRaftServer server = new KafkaRaftServer(KafkaConfig.fromProps(p, false), Time.SYSTEM);
        server.startup();
        while (System.in.read() >= 0) { }
        server.shutdown();
        server.awaitShutdown();
    }
}
