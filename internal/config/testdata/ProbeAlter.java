import java.util.*;
import org.apache.kafka.common.config.ConfigResource;
public class ProbeAlter {
  public static void main(String[] a) throws Exception {
    Properties p = new Properties();
    p.putAll(Map.of("process.roles","broker,controller","node.id","1","controller.quorum.voters","1@localhost:9093","listeners","PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093","controller.listener.names","CONTROLLER"));
    kafka.server.KafkaConfig kc = kafka.server.KafkaConfig.fromProps(p, false);
    var v = new kafka.server.ControllerConfigurationValidator(kc);
    Scanner s = new Scanner(System.in);
    while (s.hasNextLine()) {
      String line = s.nextLine(); String[] f = line.split("\\|", -1);
      Map<String,String> m = new LinkedHashMap<>();
      for (int i = 2; i < f.length; i++) { if (f[i].isEmpty()) continue; int j = f[i].indexOf('='); m.put(f[i].substring(0,j), f[i].substring(j+1).equals("NULL") ? null : f[i].substring(j+1)); }
      String r;
      try { v.validate(new ConfigResource(ConfigResource.Type.valueOf(f[0]), f[1]), m, Map.of()); r = "OK"; }
      catch (Throwable t) { r = t.getClass().getSimpleName() + ": " + t.getMessage(); }
      System.out.println(line + "\n   => " + r);
    }
  }
}
