import java.lang.reflect.*;
import java.util.*;
import org.apache.kafka.common.config.ConfigDef;

public class DumpTable {
  static String q(Object o) {
    if (o == null) return "null";
    StringBuilder b = new StringBuilder("\"");
    for (char c : o.toString().toCharArray()) {
      if (c == '"' || c == '\\') b.append('\\').append(c);
      else if (c < 32) b.append(String.format("\\u%04x", (int) c));
      else b.append(c);
    }
    return b.append('"').toString();
  }
  static String vl(Object v) {
    if (!(v instanceof ConfigDef.ValidList)) return null;
    try {
      StringBuilder b = new StringBuilder();
      for (Field f : v.getClass().getDeclaredFields()) { f.setAccessible(true); b.append(f.getName()).append('=').append(f.get(v)).append(';'); }
      return b.toString();
    } catch (Exception e) { return e.toString(); }
  }
  static void def(String kind, ConfigDef d) {
    Map<String, String> modes = org.apache.kafka.server.config.DynamicBrokerConfig.dynamicConfigUpdateModes();
    for (ConfigDef.ConfigKey k : d.configKeys().values()) {
      String dv = k.defaultValue == ConfigDef.NO_DEFAULT_VALUE ? "\"<required>\"" : k.defaultValue == null ? "null" : q(ConfigDef.convertToString(k.defaultValue, k.type));
      String v = k.validator == null ? "null" : q(k.validator.toString());
      System.out.println("{\"kind\":" + q(kind) + ",\"name\":" + q(k.name) + ",\"type\":" + q(k.type) + ",\"default\":" + dv
        + ",\"validator\":" + v + ",\"vlist\":" + q(vl(k.validator)) + ",\"vclass\":" + q(k.validator == null ? null : k.validator.getClass().getName()) + ",\"importance\":" + q(k.importance) + ",\"internal\":" + k.internalConfig
        + ",\"mode\":" + q(kind.equals("broker") ? modes.getOrDefault(k.name, "read-only") : "") + "}");
    }
  }
  static Object field(Class<?> c, String n) throws Exception { Field f = c.getDeclaredField(n); f.setAccessible(true); return f.get(null); }
  public static void main(String[] a) throws Exception {
    Class<?> logc = org.apache.kafka.storage.internals.log.LogConfig.class;
    def("broker", org.apache.kafka.server.config.AbstractKafkaConfig.CONFIG_DEF);
    def("topic", (ConfigDef) field(logc, "CONFIG"));
    def("group", org.apache.kafka.coordinator.group.GroupConfig.CONFIG_DEF);
    def("client-metrics", org.apache.kafka.server.metrics.ClientMetricsConfigs.configDef());
    def("quota-broker", org.apache.kafka.server.config.QuotaConfig.brokerQuotaConfigs());
    def("quota-client", org.apache.kafka.server.config.QuotaConfig.userAndClientQuotaConfigs());
    def("quota-ip", org.apache.kafka.server.config.QuotaConfig.ipConfigs());
    def("dynamic-broker", (ConfigDef) field(Class.forName("org.apache.kafka.server.config.DynamicConfig$Broker"), "BROKER_CONFIGS"));
    Class<?> db = org.apache.kafka.server.config.DynamicBrokerConfig.class;
    for (String s : new String[]{"DYNAMIC_SECURITY_CONFIGS","CLUSTER_LEVEL_LISTENER_CONFIGS","PER_BROKER_CONFIGS","ALL_DYNAMIC_CONFIGS","LISTENER_MECHANISM_CONFIGS"})
      System.out.println("{\"set\":" + q(s) + ",\"v\":" + q(new TreeSet<>((Set<String>) field(db, s))) + "}");
    System.out.println("{\"set\":\"regex\",\"v\":" + q(field(db, "LISTENER_CONFIG_REGEX")) + "}");
    for (var e : new TreeMap<>(org.apache.kafka.server.config.ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS).entrySet()) {
      StringBuilder s = new StringBuilder();
      for (var y : e.getValue()) { s.append(y.name()).append('=').append(y.converter().apply("7200000")).append(' '); }
      System.out.println("{\"syn\":" + q(e.getKey()) + ",\"v\":" + q(s) + "}");
    }
    for (var e : new TreeMap<>(org.apache.kafka.coordinator.group.GroupConfig.ALL_GROUP_CONFIG_SYNONYMS).entrySet())
      System.out.println("{\"gsyn\":" + q(e.getKey()) + ",\"v\":" + q(e.getValue().orElse("")) + "}");
    for (ConfigDef.ConfigKey k : org.apache.kafka.server.config.AbstractKafkaConfig.CONFIG_DEF.configKeys().values()) {
      var l = org.apache.kafka.server.config.DynamicBrokerConfig.brokerConfigSynonyms(k.name, true);
      if (l.size() > 1) System.out.println("{\"bsyn\":" + q(k.name) + ",\"v\":" + q(l) + "}");
    }
  }
}
