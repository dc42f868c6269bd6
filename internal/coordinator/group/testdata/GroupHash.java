// Prints what Apache Kafka 4.4 makes of topics for the MetadataHash of a consumer group; hash_test.go knows the answers.
// Run: java -cp 'KAFKA_JARS/*' GroupHash.java
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage.TopicMetadata;
import org.apache.kafka.coordinator.group.Utils;

public class GroupHash {
    public static void main(String[] args) {
        Map<String, Long> group = new HashMap<>();
        System.out.println("nothing " + Utils.computeGroupHash(group));
        Map<String, TopicMetadata> topics = new HashMap<>();
        topics.put("t", topic("t", new Uuid(1, 2), List.of(List.of())));
        topics.put("orders", topic("orders", new Uuid(0x8123456789abcdefL, -5), List.of(List.of("b", "a"), List.of("größe-𝄞"), List.of())));
        List<List<String>> many = new ArrayList<>();
        for (int i = 0; i < 200; i++) many.add(List.of("rack-" + i % 3, "rack-" + i % 3));
        topics.put("many", topic("many", new Uuid(7, 7), many));
        for (String name : List.of("t", "orders", "many", "missing")) {
            long h = Utils.computeTopicHash(name, image(topics));
            System.out.println(name + " " + h);
            if (topics.containsKey(name)) group.put(name, h);
            System.out.println("group with it " + Utils.computeGroupHash(group));
        }
    }

    static TopicMetadata topic(String name, Uuid id, List<List<String>> racks) {
        return (TopicMetadata) Proxy.newProxyInstance(GroupHash.class.getClassLoader(), new Class<?>[] {TopicMetadata.class}, (p, method, args) ->
            switch (method.getName()) {
                case "name" -> name;
                case "id" -> id;
                case "partitionCount" -> racks.size();
                default -> new ArrayList<>(racks.get((Integer) args[0]));
            });
    }

    static CoordinatorMetadataImage image(Map<String, TopicMetadata> topics) {
        return (CoordinatorMetadataImage) Proxy.newProxyInstance(GroupHash.class.getClassLoader(), new Class<?>[] {CoordinatorMetadataImage.class},
            (p, method, args) -> Optional.ofNullable(topics.get(args[0])));
    }
}
