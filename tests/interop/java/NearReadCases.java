import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A consumer in the rack of a follower: each case prints "ok NAME" or "failed NAME: reason". */
public final class NearReadCases {
    private static final String RACK = "rack-2";
    private static String bootstrap;

    interface Case {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("old_and_new_records", NearReadCases::oldAndNewRecords);
        cases.put("committed_records", NearReadCases::committedRecords);
        cases.put("ends_by_the_leader", NearReadCases::endsByTheLeader);
        for (Map.Entry<String, Case> entry : cases.entrySet()) {
            try {
                entry.getValue().run();
                System.out.println("ok " + entry.getKey());
            } catch (Throwable failure) {
                StackTraceElement where = Arrays.stream(failure.getStackTrace())
                        .filter(frame -> frame.getClassName().startsWith("NearReadCases"))
                        .findFirst().orElse(null);
                String reason = String.valueOf(failure).replace('\n', ' ');
                System.out.println("failed " + entry.getKey() + ": " + reason + " at " + where);
            }
        }
        System.exit(0);
    }

    private static KafkaProducer<String, String> producer(String transactionalId) {
        Map<String, Object> settings = new LinkedHashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String topic, String isolation) {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                Map.of("bootstrap.servers", bootstrap, "client.rack", RACK, "isolation.level", isolation,
                        "auto.offset.reset", "none", "enable.auto.commit", "false"),
                new StringDeserializer(), new StringDeserializer());
        TopicPartition partition = new TopicPartition(topic, 0);
        consumer.assign(List.of(partition));
        consumer.seek(partition, 0);
        return consumer;
    }

    private static void read(KafkaConsumer<String, String> consumer, List<String> values, int count) {
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (values.size() < count && System.nanoTime() < deadline) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                values.add(record.value());
            }
        }
        check(values.size() == count, "read " + values.size() + " of " + count);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static void oldAndNewRecords() {
        String filling = "x".repeat(100);
        List<String> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(null);
                KafkaConsumer<String, String> consumer = consumer("near", "read_uncommitted")) {
            List<String> read = new ArrayList<>();
            for (int round = 0; round < 4; round++) {
                for (int number = 0; number < 500; number++) {
                    String value = round + "-" + number + filling;
                    sent.add(value);
                    producer.send(new ProducerRecord<>("near", value));
                }
                producer.flush();
                read(consumer, read, sent.size());
            }
            check(read.equals(sent), "other records, or in another order");
        }
    }

    private static void committedRecords() {
        List<String> committed = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer("near");
                KafkaConsumer<String, String> consumer = consumer("transactions", "read_committed")) {
            producer.initTransactions();
            for (int round = 0; round < 6; round++) {
                producer.beginTransaction();
                for (int number = 0; number < 20; number++) {
                    producer.send(new ProducerRecord<>("transactions", round + "-" + number));
                    if (round % 2 == 0) {
                        committed.add(round + "-" + number);
                    }
                }
                if (round % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            List<String> read = new ArrayList<>();
            read(consumer, read, committed.size());
            check(read.equals(committed), "other records than the committed ones");
            check(consumer.poll(Duration.ofSeconds(1)).isEmpty(), "more records than the committed ones");
        }
    }

    private static void endsByTheLeader() {
        try (KafkaConsumer<String, String> consumer = consumer("near", "read_uncommitted")) {
            TopicPartition partition = new TopicPartition("near", 0);
            check(consumer.endOffsets(List.of(partition)).get(partition) == 2000, "another end");
            check(consumer.beginningOffsets(List.of(partition)).get(partition) == 0, "another start");
        }
    }
}
