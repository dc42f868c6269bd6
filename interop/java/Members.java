import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A driver of Apache's Java consumers, in one JVM: see ../groups_test.go for what it reads and prints. */
public class Members {
    public static void main(String[] args) throws Exception {
        Map<String, Member> running = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            if (words[0].equals("start")) {
                Member m = new Member(words);
                running.put(words[1], m);
                m.start();
            } else running.remove(words[1]).stopping = true;
        }
        for (Member m : running.values()) m.stopping = true;
        for (Member m : running.values()) m.join();
    }

    static class Member extends Thread implements ConsumerRebalanceListener {
        final String name, topic;
        final Properties properties = new Properties();
        final TreeSet<Integer> owned = new TreeSet<>();
        final Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>(); // what to commit
        int uncommitted; // records read and not committed
        KafkaConsumer<String, String> consumer;
        volatile boolean stopping;

        Member(String[] words) {
            name = words[1];
            topic = words[4];
            properties.put("client.id", name);
            properties.put("bootstrap.servers", words[2]);
            properties.put("group.id", words[3]);
            properties.put("enable.auto.commit", "false");
            properties.put("auto.offset.reset", "earliest");
            properties.put("key.deserializer", StringDeserializer.class.getName());
            properties.put("value.deserializer", StringDeserializer.class.getName());
            for (int i = 5; i < words.length; i++) {
                properties.put(words[i].substring(0, words[i].indexOf('=')), words[i].substring(words[i].indexOf('=') + 1));
            }
        }

        @Override public void run() {
            try (KafkaConsumer<String, String> c = new KafkaConsumer<>(properties)) {
                consumer = c;
                c.subscribe(List.of(topic), this);
                while (!stopping) {
                    for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(100))) {
                        say("read " + r.partition() + " " + r.offset() + " " + r.value());
                        next.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
                        uncommitted++;
                    }
                    if (uncommitted >= 50) commit();
                }
                commit();
            } catch (Throwable e) {
                say("died " + e);
            }
            say("left");
        }

        void commit() {
            if (next.isEmpty()) return;
            try {
                consumer.commitSync(next);
                forget();
            } catch (RebalanceInProgressException e) {
                // the partitions are still this member's: it commits later
            } catch (CommitFailedException e) {
                say("failed " + uncommitted);
                forget();
            }
        }

        void forget() {
            next.clear();
            uncommitted = 0;
        }

        @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(p -> owned.add(p.partition()));
            owns();
        }

        @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            commit();
            partitions.forEach(p -> owned.remove(p.partition()));
            owns();
        }

        @Override public void onPartitionsLost(Collection<TopicPartition> partitions) {
            say("failed " + uncommitted);
            forget();
            partitions.forEach(p -> owned.remove(p.partition()));
            owns();
        }

        void owns() {
            say("owns " + owned.stream().map(String::valueOf).collect(Collectors.joining(" ")));
        }

        void say(String what) {
            synchronized (System.out) {
                System.out.println(name + " " + what);
                System.out.flush();
            }
        }
    }
}
