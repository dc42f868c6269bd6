// Writes the *.batch files beside it with Apache Kafka's own classes:
//   java -cp "$KAFKA_LIBS/*" Golden.java .
import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;

public class Golden {
    static void write(String dir, String name, MemoryRecords records) throws Exception {
        try (FileChannel c = FileChannel.open(Path.of(dir, name + ".batch"), StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING)) {
            c.write(records.buffer());
        }
    }

    public static void main(String[] args) throws Exception {
        for (String codec : new String[]{"none", "gzip", "snappy", "lz4", "zstd"}) {
            Compression compression = Compression.of(codec).build();
            MemoryRecordsBuilder b = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), RecordBatch.MAGIC_VALUE_V2, compression,
                TimestampType.CREATE_TIME, 0L, 0L, 4242L, (short) 7, 100, false, false, -1);
            b.append(1700000000000L, "k0".getBytes(), "value zero".getBytes());
            b.append(1700000000500L, null, "v1".getBytes(), new Header[]{new RecordHeader("h", "x".getBytes()), new RecordHeader("nil", null)});
            b.append(1700000000250L, "k2".getBytes(), null);
            b.append(1700000000100L, "".getBytes(), "abc".repeat(codec.equals("none") ? 5 : 50000).getBytes());
            write(args[0], codec, b.build());
        }
        write(args[0], "commit", MemoryRecords.withEndTransactionMarker(0L, 1700000000000L, -1, 4242L, (short) 8, new EndTransactionMarker(ControlRecordType.COMMIT, 3)));
    }
}
