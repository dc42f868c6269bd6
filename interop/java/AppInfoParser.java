package org.apache.kafka.common.utils;

/** Where connect-file 4.3.1, the last that was published, looks for what Kafka 4.4 has elsewhere. */
public class AppInfoParser {
    public static String getVersion() { return org.apache.kafka.common.utils.internals.AppInfoParser.getVersion(); }
}
