import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache's Java producer and consumer, driven by the interop test (see ../interop_test.go for the record format):
 * produce BOOTSTRAP TOPIC CODEC PREFIX COUNT key=value… | consume BOOTSTRAP TOPIC | follow BOOTSTRAP TOPIC LAST, which reads
 * partition 0 from its start until a record has the key LAST, and prints "offset key" of each at once.
 */
public class Client {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("produce")) produce(args[1], args[2], args[3], args[4], Integer.parseInt(args[5]), Arrays.copyOfRange(args, 6, args.length));
        else if (args[0].equals("follow")) follow(args[1], args[2], args[3]);
        else consume(args[1], args[2]);
    }

    static void produce(String bootstrap, String topic, String codec, String prefix, int count, String[] settings) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("compression.type", codec);
        p.put("key.serializer", ByteArraySerializer.class.getName());
        p.put("value.serializer", ByteArraySerializer.class.getName());
        for (String s : settings) p.put(s.substring(0, s.indexOf('=')), s.substring(s.indexOf('=') + 1));
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p)) {
            List<java.util.concurrent.Future<?>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                ProducerRecord<byte[], byte[]> r = new ProducerRecord<>(topic, i % 3, 1700000000000L + i, bytes("k" + i), bytes(prefix + "-" + i));
                r.headers().add("h", bytes(prefix));
                sent.add(producer.send(r));
            }
            for (var f : sent) f.get();
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("key.deserializer", ByteArrayDeserializer.class.getName());
        p.put("value.deserializer", ByteArrayDeserializer.class.getName());
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(p);
    }

    static void follow(String bootstrap, String topic, String last) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap)) {
            TopicPartition tp = new TopicPartition(topic, 0);
            consumer.assign(List.of(tp));
            consumer.seekToBeginning(List.of(tp));
            for (boolean seen = false; !seen; System.out.flush()) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println(r.offset() + " " + text(r.key()));
                    seen |= text(r.key()).equals(last);
                }
            }
        }
    }

    static void consume(String bootstrap, String topic) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap)) {
            List<TopicPartition> all = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(i -> all.add(new TopicPartition(topic, i.partition())));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            StringBuilder out = new StringBuilder();
            while (all.stream().anyMatch(tp -> consumer.position(tp) < ends.get(tp))) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(500))) {
                    out.append(r.partition()).append(' ').append(r.offset()).append(' ').append(r.timestamp()).append(' ')
                        .append(text(r.key())).append(' ').append(text(r.value()));
                    r.headers().forEach(h -> out.append(' ').append(h.key()).append('=').append(text(h.value())));
                    out.append('\n');
                }
            }
            System.out.print(out);
        }
    }

    static byte[] bytes(String s) { return s.getBytes(StandardCharsets.UTF_8); }

    static String text(byte[] b) { return b == null ? "null" : new String(b, StandardCharsets.UTF_8); }
}
