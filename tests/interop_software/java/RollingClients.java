import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Producers and members of groups with their default settings, at work until a file appears. Prints "error ..." for
 * every error that reaches the application, then "sent NAME COUNT" for each producer and "read GROUP VALUES DOUBLED" for
 * each group. Arguments: bootstrap servers, the file, the seconds to read what is left, the topics of the producers.
 */
public class RollingClients {
    static final List<String> NAMES = List.of("plain", "idempotent", "transactional");
    static final List<String> PROTOCOLS = List.of("classic", "consumer");
    static final Map<String, AtomicInteger> SENT = new ConcurrentHashMap<>();
    static final Map<String, Map<String, Integer>> READ = new ConcurrentHashMap<>();
    static volatile boolean writing = true;
    static volatile boolean reading = true;

    static synchronized void error(String who, Throwable failure) {
        System.out.println("error " + who + ": " + failure);
        failure.printStackTrace();
    }

    static void write(String servers, String name, String topic) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        if (name.equals("plain")) settings.put("enable.idempotence", "false");
        boolean transactional = name.equals("transactional");
        if (transactional) settings.put("transactional.id", name);
        AtomicInteger sent = SENT.computeIfAbsent(name, each -> new AtomicInteger());
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            if (transactional) producer.initTransactions();
            while (writing) {
                try {
                    if (transactional) producer.beginTransaction();
                    for (int record = 0; record < 10; record++) {
                        int number = sent.getAndIncrement();
                        String value = String.format("%s-%06d", name, number);
                        producer.send(new ProducerRecord<>(topic, String.valueOf(number % 30), value), (told, failure) -> {
                            if (failure != null) error(name + " delivery", failure);
                        });
                        Thread.sleep(10);
                    }
                    if (transactional) producer.commitTransaction();
                } catch (KafkaException failure) {
                    error(name, failure);
                    if (transactional) producer.abortTransaction();
                }
            }
            producer.flush();
        } catch (Exception failure) {
            error(name + " ended", failure);
        }
    }

    static void read(String servers, String protocol, List<String> topics) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", "java-" + protocol);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        Map<String, Integer> found = READ.computeIfAbsent(protocol, each -> new ConcurrentHashMap<>());
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(topics);
            while (reading) {
                try {
                    ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                    for (ConsumerRecord<String, String> record : records) found.merge(record.value(), 1, Integer::sum);
                    if (!records.isEmpty()) consumer.commitSync();
                } catch (KafkaException failure) {
                    error(protocol, failure);
                }
            }
        } catch (Exception failure) {
            error(protocol + " ended", failure);
        }
    }

    static Thread begin(Runnable work) {
        Thread thread = new Thread(work);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        Path stop = Path.of(arguments[1]);
        long leftMs = Long.parseLong(arguments[2]) * 1000;
        List<String> topics = List.of(arguments).subList(3, 6);
        List<Thread> readers = new ArrayList<>();
        for (String protocol : PROTOCOLS)
            for (int member = 0; member < 2; member++) readers.add(begin(() -> read(servers, protocol, topics)));
        List<Thread> writers = new ArrayList<>();
        for (int number = 0; number < NAMES.size(); number++) {
            String name = NAMES.get(number), topic = topics.get(number);
            writers.add(begin(() -> write(servers, name, topic)));
        }
        while (READ.size() < PROTOCOLS.size() || READ.values().stream().anyMatch(Map::isEmpty)) Thread.sleep(100);
        System.out.println("working");
        while (!Files.exists(stop)) Thread.sleep(100);
        writing = false;
        for (Thread writer : writers) writer.join();
        int sent = SENT.values().stream().mapToInt(AtomicInteger::get).sum();
        long endMs = System.currentTimeMillis() + leftMs;
        while (READ.values().stream().anyMatch(found -> found.size() < sent) && System.currentTimeMillis() < endMs)
            Thread.sleep(100);
        reading = false;
        for (Thread reader : readers) reader.join();
        SENT.forEach((name, count) -> System.out.println("sent " + name + " " + count));
        READ.forEach((group, found) -> {
            long doubled = found.entrySet().stream()
                .filter(each -> each.getValue() > 1 && !each.getKey().startsWith("plain")).count();
            System.out.println("read " + group + " " + found.size() + " " + doubled);
        });
    }
}
