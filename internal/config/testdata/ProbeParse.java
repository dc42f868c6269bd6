import java.util.*;
public class ProbeParse {
  public static void main(String[] a) throws Exception {
    Scanner s = new Scanner(System.in);
    while (s.hasNextLine()) {
      String line = s.nextLine();
      Properties p = new Properties();
      Map<String,String> base = new LinkedHashMap<>();
      base.put("process.roles","broker,controller"); base.put("node.id","1"); base.put("controller.quorum.voters","1@localhost:9093");
      base.put("listeners","PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"); base.put("controller.listener.names","CONTROLLER");
      for (String kv : line.split("\\|")) { if (kv.isEmpty()) continue; if (kv.startsWith("-")) { base.remove(kv.substring(1)); continue; } int i = kv.indexOf('='); base.put(kv.substring(0,i), kv.substring(i+1)); }
      p.putAll(base);
      String r;
      try { kafka.server.KafkaConfig c = kafka.server.KafkaConfig.fromProps(p, false); r = "OK " + c.listeners() + " adv=" + c.effectiveAdvertisedBrokerListeners() + " ib=" + c.interBrokerListenerName() + " dirs=" + c.logDirs() + " rms=" + c.logRetentionTimeMillis(); }
      catch (Throwable t) { while (t.getCause() != null && !(t instanceof org.apache.kafka.common.config.ConfigException)) t = t.getCause(); r = t.getClass().getSimpleName() + ": " + t.getMessage(); }
      System.out.println(line + "\n   => " + r);
    }
  }
}
