import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Instances of a Kafka Streams application, in one JVM, that counts the words of topic "lines" into topic "counts". Standard
 * input: start NAME BOOTSTRAP STATEDIR key=value… | stop NAME, which leaves the group | halt NAME, which does not, as Streams
 * closes by default. Output: "NAME RUNNING" and the other states as they come, and "NAME closed".
 */
public class WordCount {
    public static void main(String[] args) throws Exception {
        Map<String, KafkaStreams> running = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            if (words[0].equals("start")) running.put(words[1], start(words));
            else close(words[1], running.remove(words[1]), words[0].equals("stop"));
        }
        running.forEach((name, streams) -> close(name, streams, true));
    }

    static KafkaStreams start(String[] words) {
        Properties p = new Properties();
        p.put("application.id", "wordcount");
        p.put("client.id", words[1]);
        p.put("bootstrap.servers", words[2]);
        p.put("state.dir", words[3]);
        for (String s : Arrays.copyOfRange(words, 4, words.length)) p.put(s.substring(0, s.indexOf('=')), s.substring(s.indexOf('=') + 1));
        StreamsBuilder b = new StreamsBuilder();
        b.stream("lines", Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            // In memory: each start restores the counts from the changelog topic, and no native library need be installed.
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts-store")).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream().mapValues(String::valueOf)
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(b.build(), p);
        streams.setStateListener((now, before) -> {
            if (now != KafkaStreams.State.NOT_RUNNING) say(words[1], now.toString()); // which close says, perhaps before this
        });
        streams.setUncaughtExceptionHandler(e -> {
            say(words[1], "died " + e);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        return streams;
    }

    static void close(String name, KafkaStreams streams, boolean leave) {
        CloseOptions how = CloseOptions.timeout(Duration.ofSeconds(30))
            .withGroupMembershipOperation(leave ? GroupMembershipOperation.LEAVE_GROUP : GroupMembershipOperation.REMAIN_IN_GROUP);
        say(name, streams.close(how) ? "closed" : "died: not closed within 30 s");
    }

    static void say(String name, String what) {
        synchronized (System.out) {
            System.out.println(name + " " + what);
            System.out.flush();
        }
    }
}
